from aioproducer.records._pure_arrow import ArrowChunk as ArrowChunk
from aioproducer.records._pure_arrow import ArrowSource as ArrowSource
