"""One broker process on this machine.

    new --start--> running --stop/kill--> ended --start--> running ...
                   running --pause--> frozen --resume--> running

Invariants: the JVM never outlives the process that started it, however that one ends (see
`_Watchdog`); all it prints goes to `server.log`, never to a pipe that may fill up.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from aioproducer.testing.kafka.errors import ClusterError
from aioproducer.testing.kafka.java import Java
from aioproducer.testing.kafka.settings import NodeAddress, write_properties

_STOP_TIMEOUT_S = 60.0
_FORMAT_TIMEOUT_S = 60.0
_TAIL_BYTES = 3000
_JVM_OPTIONS = (
    # Quick to start and small rather than fast in the long run.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class _Watchdog:
    """Kills a process group as soon as this process is gone, even by SIGKILL.

    A shell waits on a pipe whose other end only this process holds: its end is the end of the
    pipe. (The kernel's parent-death signal would not do: it fires when the starting *thread*
    ends, and clusters are started from worker threads.)
    """

    def __init__(self, group: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$1"', "watchdog", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the watch without a kill; to be done before the watched process is reaped."""
        self._shell.kill()
        self._shell.communicate()


class BrokerProcess:
    """A Kafka broker and controller, or a ZooKeeper, in a separate JVM."""

    def __init__(
        self,
        address: NodeAddress,
        *,
        java: Java,
        classpath: Sequence[Path],
        directory: Path,
        settings: Mapping[str, str],
        heap_mb: int,
        features: Mapping[str, int],
        jvm_options: Sequence[str] = (),
        main_class: str = "kafka.Kafka",
    ) -> None:
        self.address = address
        self.directory = directory
        self.log_path: Path = directory / "server.log"
        self.data_dir: Path = Path(settings["log.dirs"])
        self._settings = settings
        self._main_class = main_class
        self._features = features
        self._properties = directory / "server.properties"
        self._command = [str(java.executable), f"-Xmx{heap_mb}m", *_JVM_OPTIONS, *jvm_options]
        self._command += ["-cp", os.pathsep.join(map(str, classpath))]
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: _Watchdog | None = None

    @property
    def pid(self) -> int | None:
        """The id of the JVM's process while it has one."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """The exit of the JVM by itself; None while it runs, and after `stop` or `kill`."""
        return self._process.poll() if self._process else None

    def prepare(self, cluster_id: str | None) -> None:
        """Write the configuration and format the storage, unless that was done before.

        Without a `cluster_id` there is nothing to format: ZooKeeper and its brokers do that alone.

        Raises:
            ClusterError: Kafka's StorageTool refused.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        write_properties(self._properties, self._settings)
        if cluster_id is None or (self.data_dir / "meta.properties").exists():
            return
        command = [*self._command, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", cluster_id, "--config", str(self._properties)]
        for feature, level in self._features.items():
            command += ["--feature", f"{feature}={level}"]
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )
        if answer.returncode != 0:
            raise ClusterError(f"StorageTool failed:\n{answer.stdout[-_TAIL_BYTES:]}")

    def start(self) -> None:
        """Start the JVM; it serves some seconds later."""
        if self._process is not None:
            raise ClusterError(f"node {self.address.node_id} runs already")
        command = [*self._command, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                [*command, self._main_class, str(self._properties)],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._process, self._watchdog = process, _Watchdog(process.pid)

    def kill(self) -> None:
        """SIGKILL, frozen or not; nothing happens when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Stop by SIGTERM; after a timeout by SIGKILL, which raises `ClusterError`."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ClusterError(
                f"node {self.address.node_id} did not stop within {_STOP_TIMEOUT_S:.0f} s and was "
                f"killed\n{self.log_tail()}"
            ) from None
        finally:
            self._reap()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of the log, with its path."""
        try:
            text = self.log_path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError as error:
            text = f"(no log: {error})"
        return f"--- {self.log_path}\n{text}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise ClusterError(f"node {self.address.node_id} does not run")
        self._process.send_signal(number)

    def _reap(self) -> None:
        if self._watchdog is not None:
            self._watchdog.dismiss()
        if self._process is not None:
            self._process.wait()
        self._process = self._watchdog = None
