"""Programs written for aiokafka. A test runs each as it stands and with one import changed."""
