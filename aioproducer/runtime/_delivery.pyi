from aioproducer.core.produce_answers import usual_outcome as usual_outcome
from aioproducer.runtime._puredelivery import Delivery as Delivery
from aioproducer.runtime._puredelivery import Receipt as Receipt
from aioproducer.runtime._puredelivery import WakeUps as WakeUps
