// What all tests include, to be precompiled: see tests/CMakeLists.txt.

#include <gtest/gtest.h>
