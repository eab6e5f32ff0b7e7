sherd_example(demo)
sherd_example(lesson_01_mesh)
