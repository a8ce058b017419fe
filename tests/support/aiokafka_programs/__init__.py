"""Programs written for aiokafka. A test runs each unchanged and with one import changed."""
