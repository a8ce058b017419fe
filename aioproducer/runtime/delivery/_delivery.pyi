from aioproducer.core.sending.produce_answers import usual_outcome as usual_outcome
from aioproducer.runtime.delivery._delivery_py import Delivery as Delivery
from aioproducer.runtime.delivery._delivery_py import Receipt as Receipt
from aioproducer.runtime.delivery._delivery_py import WakeUps as WakeUps
