"""Traces without a change of the program: an instrumentor for OpenTelemetry.

`opentelemetry-instrument python app.py` finds it by its entry point. In code:

    from aioproducer.contrib.otel import AioproducerInstrumentor

    AioproducerInstrumentor().instrument()

It needs the extra `aioproducer[otel]`. Until `instrument()` is called, sending costs nothing more.
"""

from aioproducer.contrib.otel._instrumentor import AioproducerInstrumentor

__all__ = ["AioproducerInstrumentor"]
