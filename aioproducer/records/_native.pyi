from aioproducer.records._pure import RecordBatchBuilder as RecordBatchBuilder
from aioproducer.records._pure import murmur2 as murmur2
from aioproducer.records._pure import murmur2_partition as murmur2_partition
from aioproducer.records._pure import record_size_bound as record_size_bound
from aioproducer.records._pure import single_record_request as single_record_request
