from aioproducer.runtime.delivery._delivery_py import Delivery as Delivery
from aioproducer.runtime.delivery._delivery_py import Receipt as Receipt
from aioproducer.runtime.delivery._delivery_py import WakeUps as WakeUps
