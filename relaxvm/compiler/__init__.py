"""From a program to an executable: `build`, and the code generators and linker behind it."""
