# cmake -DRELEASE=0.1.0 -DOUTPUT=FILE -P version.cmake: writes phalanxConfigVersion.cmake. Before 1.0 a minor version can
# break the API.
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${OUTPUT}" VERSION "${RELEASE}" COMPATIBILITY SameMinorVersion)
