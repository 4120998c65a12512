# Trains a dozen times, on two processes.
set_tests_properties(examples.train_image PROPERTIES TIMEOUT 300 PROCESSORS 2)
