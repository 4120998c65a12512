# Each trains about a dozen times, on two processes.
set_tests_properties(examples.train_image examples.train_image_options PROPERTIES TIMEOUT 300 PROCESSORS 2)
