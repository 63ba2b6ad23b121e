// banks.cpp — a plugin for Oclgrind that counts how often lanes of a sub-group meet in a bank of local memory; see banks.sh.
//
// A sub-group's access is done in phases of 128 bytes: 8 lanes of 16 bytes, 16 of 8 or 32 of 4.  Of each phase a bank, one of 32 that are four
// bytes wide, gives one word per cycle, to all lanes that want it; so a phase takes as many cycles as words are wanted of one bank.
// The first work-group of every launch is looked at.
#include "oclgrind/Context.h"
#include "oclgrind/Kernel.h"
#include "oclgrind/KernelInvocation.h"
#include "oclgrind/Memory.h"
#include "oclgrind/Plugin.h"
#include "oclgrind/WorkItem.h"
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace oclgrind;

constexpr size_t SUBGROUP = 32, BANKS = 32, WORD = 4, PHASE = 128;

struct Place {
    size_t lane, address;
};
struct Count {
    size_t phases, cycles, worst;
};
// What a sub-group does at once: its number, the instruction, which of its runs, a store or not, the bytes of a lane.
using Access = std::tuple<size_t, const void *, size_t, bool, size_t>;
using Kind = std::tuple<std::string, bool, size_t>; // kernel, a store or not, the bytes of a lane

class Plugged : public Plugin {
    std::map<std::pair<const WorkItem *, const void *>, size_t> runs;
    std::map<Access, std::vector<Place>> accesses;
    std::map<Kind, Count> counts;
    Size3 local;

    void note(const Memory *memory, const WorkItem *item, size_t address, size_t size, bool store) {
        if (!item || memory->getAddressSpace() != AddrSpaceLocal) return;
        Size3 global = item->getGlobalID(), at = item->getLocalID();
        if (global.x >= local.x || global.y >= local.y || global.z >= local.z) return;
        size_t number = at.x + local.x * (at.y + local.y * at.z);
        const void *instruction = item->getCurrentInstruction();
        size_t run = runs[{item, instruction}]++;
        accesses[{number / SUBGROUP, instruction, run, store, size}].push_back({number % SUBGROUP, address});
    }

    static void count(const std::vector<Place> &places, size_t size, Count &count) {
        size_t lanes = std::max<size_t>(1, std::min(SUBGROUP, PHASE / std::max(size, WORD)));
        std::map<size_t, std::map<size_t, std::set<size_t>>> wanted; // words of each bank, of each phase
        for (const Place &p : places)
            for (size_t word = p.address / WORD; word * WORD < p.address + size; word++)
                wanted[p.lane / lanes][word % BANKS].insert(word);
        for (const auto &phase : wanted) {
            size_t cycles = 0;
            for (const auto &bank : phase.second) cycles = std::max(cycles, bank.second.size());
            count.phases++;
            count.cycles += cycles;
            count.worst = std::max(count.worst, cycles);
        }
    }

  public:
    explicit Plugged(const Context *context) : Plugin(context) {}
    ~Plugged() override {
        for (const auto &c : counts)
            std::fprintf(stderr, "banks: %-20s %-5s %2zu bytes: %7zu phases, %7zu cycles, at worst %zu\n",
                         std::get<0>(c.first).c_str(), std::get<1>(c.first) ? "store" : "load", std::get<2>(c.first),
                         c.second.phases, c.second.cycles, c.second.worst);
    }
    bool isThreadSafe() const override { return false; }
    void kernelBegin(const KernelInvocation *launch) override { local = launch->getLocalSize(); }
    void memoryLoad(const Memory *memory, const WorkItem *item, size_t address, size_t size) override {
        note(memory, item, address, size, false);
    }
    void memoryStore(const Memory *memory, const WorkItem *item, size_t address, size_t size, const uint8_t *) override {
        note(memory, item, address, size, true);
    }
    void kernelEnd(const KernelInvocation *launch) override {
        for (const auto &a : accesses)
            count(a.second, std::get<4>(a.first),
                  counts[{launch->getKernel()->getName(), std::get<3>(a.first), std::get<4>(a.first)}]);
        runs.clear();
        accesses.clear();
    }
};

Plugged *plugged;

} // namespace

extern "C" void initializePlugins(Context *context) { context->registerPlugin(plugged = new Plugged(context)); }
extern "C" void releasePlugins(Context *context) {
    context->unregisterPlugin(plugged);
    delete plugged;
}
