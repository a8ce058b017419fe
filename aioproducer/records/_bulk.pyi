from aioproducer.records._pure_bulk import OpenBatches as OpenBatches
from aioproducer.records._pure_bulk import Share as Share
from aioproducer.records._pure_bulk import fill_items as fill_items
