from aioproducer.runtime.send._fast_path_py import FastPath as FastPath
from aioproducer.runtime.send._fast_path_py import install_native_send as install_native_send
from aioproducer.runtime.send._fast_path_py import wall_clock_ms as wall_clock_ms
