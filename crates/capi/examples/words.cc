// words NAME: counts the words of a file of another machine, which lies in memory and on no disk. In C++.

#include <cctype>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "godwit.h"

class Memory {
public:
    explicit Memory(const char *name)
    {
        if (gass_memory(name, &memory) != 0)
            throw std::runtime_error(godwit_strerror());
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() { godwit_memory_free(&memory); }
    std::string_view text() const { return {static_cast<const char *>(memory.data), memory.size}; }

private:
    godwit_memory memory{};
};

int main(int count, char **names)
try {
    if (count != 2)
        throw std::runtime_error("NAME is missing");
    Memory memory(names[1]);
    long words = 0;
    bool within = false;
    for (unsigned char c : memory.text()) {
        if (!std::isspace(c) && !within)
            words++;
        within = !std::isspace(c);
    }
    std::printf("%ld\n", words);
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "words: %s\n", error.what());
    return 1;
}
