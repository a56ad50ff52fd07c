// The manager of lru_manager.hpp as a program:
//
//     poolproof certify 'cmd:./lru_manager_cpp'
//     poolproof certify 'cmd:./lru_manager_cpp --bug parent-left-out'     is refused
#include "lru_manager.hpp"

#include <iostream>

int main(int argc, char **argv) {
    const bool leaves_parent_out =
        argc == 3 && std::string(argv[1]) == "--bug" && std::string(argv[2]) == "parent-left-out";
    if (argc != 1 && !leaves_parent_out) {
        std::cerr << "usage: " << argv[0] << " [--bug parent-left-out]\n";
        return 2;
    }
    return poolproof::serve(
        {"lru-manager-cpp", "1",
         R"({"eviction":"lru","duplicates":"first","reserves":"sequence"})"},
        [=](long num_blocks, long block_size, bool caching) {
            return std::make_unique<LruManager>(num_blocks, block_size, caching, leaves_parent_out);
        });
}
