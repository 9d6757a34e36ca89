#include "topology/plan/algorithms.hpp"

#include <array>

#include "ddl/error.hpp"

namespace ddl::topology {
namespace {

constexpr std::array algorithms = {Algorithm::ring,     Algorithm::halving_doubling,
                                   Algorithm::two_shot, Algorithm::one_shot,
                                   Algorithm::tree,     Algorithm::double_tree};

// Indexed by Algorithm.
constexpr std::array<AlgorithmTraits, algorithms.size()> traits = {{
    {.name = "ring", .scatters = true, .is_ring = true},
    {.name = "halving_doubling", .scatters = true, .is_staged = true},
    {.name = "two_shot", .scatters = true, .is_direct = true},
    {.name = "one_shot", .is_direct = true},
    {.name = "tree", .leaves_one = true, .is_tree = true},
    {.name = "double_tree", .is_tree = true},
}};

/// Members 0 to size-1 as one of two binary trees below member 0. A member with children in one tree is a
/// leaf in the other.
///
/// The first tree holds 1 to size-1 in order: odd numbers are leaves, and the number of trailing zero bits is
/// the height. The second tree mirrors the numbers, which turns even ones odd if size-1 is even; if it is
/// odd, the second tree shifts the numbers by one instead.
class BinaryTree {
 public:
  BinaryTree(int size, bool second) : last_(size - 1), second_(second) {}

  /// The tree node of a member; node 0 is the root.
  [[nodiscard]] int node_of(int member) const {
    if (!second_ || member == 0) return member;
    if (last_ % 2 == 0) return last_ + 1 - member;
    return member == 1 ? last_ : member - 1;
  }
  [[nodiscard]] int member_of(int node) const {
    if (!second_ || node == 0) return node;
    if (last_ % 2 == 0) return last_ + 1 - node;
    return node == last_ ? 1 : node + 1;
  }
  /// The parent of a node other than the root. If the parent in a complete tree does not exist, it is the
  /// nearest ancestor that does.
  [[nodiscard]] int parent_of(int node) const {
    const int bit = node & -node;
    const int parent = (node ^ bit) | (bit << 1);
    return parent <= last_ ? parent : node ^ bit;
  }
  [[nodiscard]] int depth_of(int node) const {
    int depth = 0;
    for (; node != 0; node = parent_of(node)) ++depth;
    return depth;
  }
  template <class Visit>
  void for_each_child(int node, const Visit& visit) const {
    const auto is_child = [&](int child) { return child >= 1 && child <= last_ && parent_of(child) == node; };
    if (node == 0) {
      if (last_ > 0) visit(static_cast<int>(std::bit_floor(static_cast<unsigned>(last_))));
      return;
    }
    // Where the tree is incomplete, the right child is nearer.
    int distance = (node & -node) >> 1;
    if (distance > 0 && is_child(node - distance)) visit(node - distance);
    while (distance > 0 && !is_child(node + distance)) distance >>= 1;
    if (distance > 0) visit(node + distance);
  }

 private:
  int last_;
  bool second_;
};

int wrap(int index, int size) { return (index % size + size) % size; }

int tree_rounds(int members) { return std::bit_width(static_cast<unsigned>(members - 1)); }

}  // namespace

const AlgorithmTraits& traits_of(Algorithm algorithm) noexcept { return traits[as_index(algorithm)]; }

bool scatters(Collective collective, Algorithm algorithm) noexcept {
  return has_root(collective) ? algorithm == Algorithm::two_shot : traits_of(algorithm).scatters;
}

bool takes_ragged(Collective collective, Algorithm algorithm) noexcept {
  if (has_root(collective)) return !scatters(collective, algorithm);
  return collective != Collective::all_reduce || algorithm != Algorithm::one_shot;
}

std::span<const Algorithm> all_algorithms() noexcept { return algorithms; }

std::string_view to_string(Algorithm algorithm) noexcept { return traits_of(algorithm).name; }

std::span<const Algorithm> algorithms_of(Collective collective) noexcept {
  using enum Algorithm;
  static constexpr std::array all_reduce = {ring, halving_doubling, two_shot, one_shot, tree};
  static constexpr std::array broadcast = {ring, two_shot, one_shot, tree, double_tree};
  static constexpr std::array pieces = {ring, halving_doubling, two_shot};
  static constexpr std::array reduce = {ring, two_shot, one_shot, tree};
  switch (collective) {
    case Collective::all_reduce:
      return all_reduce;
    case Collective::broadcast:
      return broadcast;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return pieces;
    case Collective::reduce:
      return reduce;
    case Collective::barrier:
      break;
  }
  return {};
}

DimensionPhases dimension_phases(Collective collective, Algorithm algorithm) {
  const bool splits = scatters(collective, algorithm);
  switch (collective) {
    case Collective::broadcast:
      if (splits) return {{PhaseKind::scatter}, {PhaseKind::all_gather}};
      return {{}, {PhaseKind::broadcast}};
    case Collective::reduce:
      if (splits) return {{PhaseKind::reduce_scatter}, {PhaseKind::gather}};
      return {{PhaseKind::reduce}, {}};
    case Collective::reduce_scatter:
      return {{PhaseKind::reduce_scatter}, {}};
    case Collective::all_gather:
      return {{}, {PhaseKind::all_gather}};
    case Collective::all_reduce:
      if (traits_of(algorithm).scatters) return {{PhaseKind::reduce_scatter}, {PhaseKind::all_gather}};
      if (algorithm == Algorithm::one_shot) return {{PhaseKind::all_reduce}, {}};
      return {{PhaseKind::reduce}, {PhaseKind::broadcast}};
    case Collective::barrier:
      break;
  }
  return {};
}

GroupPattern::GroupPattern(Collective collective, Algorithm algorithm, PhaseKind kind, int size, bool apart)
    : kind_(kind),
      size_(size),
      shape_(Shape::exchange),
      reduces_(kind == PhaseKind::reduce_scatter || kind == PhaseKind::reduce ||
               kind == PhaseKind::all_reduce) {
  switch (kind) {
    case PhaseKind::all_reduce:
      break;
    case PhaseKind::scatter:
      shape_ = Shape::from_root;
      break;
    case PhaseKind::gather:
      shape_ = Shape::to_root;
      break;
    case PhaseKind::reduce_scatter:
    case PhaseKind::all_gather:
      if (algorithm == Algorithm::ring) shape_ = Shape::ring;
      if (collective == Collective::broadcast && !apart) shape_ = Shape::gather_scattered;
      break;
    case PhaseKind::reduce:
    case PhaseKind::broadcast:
      shape_ = algorithm == Algorithm::ring          ? Shape::chain
               : algorithm == Algorithm::double_tree ? Shape::double_tree
               : algorithm == Algorithm::tree        ? Shape::binomial
               : reduces_                            ? Shape::to_root
                                                     : Shape::from_root;
      break;
  }
  const bool is_whole =
      kind == PhaseKind::all_reduce || kind == PhaseKind::reduce || kind == PhaseKind::broadcast;
  pieces_ = shape_ == Shape::double_tree ? 2 : is_whole ? 1 : size;
  if (shape_ == Shape::ring || shape_ == Shape::chain) rounds_ = size - 1;
  if (shape_ == Shape::binomial || shape_ == Shape::double_tree) rounds_ = tree_rounds(size);
  if (size < 2) rounds_ = 0;
  if (shape_ != Shape::exchange || size < 2) return;
  int stride = 1;
  int run = size;
  for (const int factor : stage_sizes(algorithm, size)) {
    run /= factor;
    stages_.push_back({factor, stride, run});
    stride *= factor;
  }
  rounds_ = static_cast<int>(stages_.size());
}

/// The message from `from` to `to`: the receiver's share in a reduction or scatter, else the sender's.
Message GroupPattern::between(int round, int from, int to, int peer) const {
  if (pieces_ == 1) return {peer, 0, 1};
  const bool goes_to_owner = reduces_ || kind_ == PhaseKind::scatter;
  if (shape_ == Shape::ring) {
    const int piece = wrap(from - round - (reduces_ ? 1 : 0), size_);
    return {peer, piece, piece + 1};
  }
  const int owner = goes_to_owner ? to : from;
  if (shape_ != Shape::exchange) return {peer, owner, owner + 1};
  const std::size_t last = as_index(reduces_ ? round : rounds_ - 1 - round);
  int first = 0;
  for (std::size_t i = 0; i <= last; ++i) {
    first += owner / stages_[i].stride % stages_[i].factor * stages_[i].run;
  }
  return {peer, first, first + stages_[last].run};
}

void GroupPattern::exchange(int round, int member, int direction, std::vector<Message>& messages) const {
  const Stage& stage = stages_[as_index(reduces_ ? round : rounds_ - 1 - round)];
  const int digit = member / stage.stride % stage.factor;
  for (int distance = 1; distance < stage.factor; ++distance) {
    const int peer = member + (wrap(digit + direction * distance, stage.factor) - digit) * stage.stride;
    messages.push_back(direction > 0 ? between(round, member, peer, peer)
                                     : between(round, peer, member, peer));
  }
}

void GroupPattern::tree(int round, int member, bool sends, std::vector<Message>& messages) const {
  if (shape_ == Shape::double_tree) {
    for (const int half : {0, 1}) {
      const BinaryTree tree(size_, half == 1);
      const int node = tree.node_of(member);
      const int depth = tree.depth_of(node);
      if (sends && depth == round) {
        tree.for_each_child(node, [&](int child) {
          messages.push_back({tree.member_of(child), half, half + 1});
        });
      }
      if (!sends && depth == round + 1) {
        messages.push_back({tree.member_of(tree.parent_of(node)), half, half + 1});
      }
    }
    return;
  }
  const int bit = tree_bit(round);
  if (member % bit != 0) return;
  const bool is_upper = (member & bit) != 0;
  const int peer = is_upper ? member - bit : member + bit;
  // In a reduce the upper member sends, in a broadcast it receives.
  if (peer < size_ && is_upper == (sends == reduces_)) messages.push_back({peer, 0, 1});
}

GroupPattern::Members GroupPattern::senders(int round) const {
  switch (shape_) {
    case Shape::chain: {
      const int member = reduces_ ? size_ - 1 - round : round;
      return {member, member + 1};
    }
    case Shape::to_root:
      return {1, size_};
    case Shape::from_root:
      return {0, 1};
    case Shape::binomial:
      return {reduces_ ? tree_bit(round) : 0, size_, 2 * tree_bit(round)};
    default:
      return {0, size_};
  }
}

void GroupPattern::sends(int round, int member, std::vector<Message>& messages) const {
  messages.clear();
  const auto add = [&](int peer) { messages.push_back(between(round, member, peer, peer)); };
  switch (shape_) {
    case Shape::ring:
      return add(wrap(member + 1, size_));
    case Shape::chain:
      if (member == (reduces_ ? size_ - 1 - round : round)) add(reduces_ ? member - 1 : member + 1);
      return;
    case Shape::exchange:
      return exchange(round, member, 1, messages);
    case Shape::gather_scattered:
      for (int distance = 1; distance < size_; ++distance) {
        if (const int peer = (member + distance) % size_; peer != 0) add(peer);
      }
      return;
    case Shape::to_root:
      if (member != 0) add(0);
      return;
    case Shape::from_root:
      for (int peer = 1; member == 0 && peer < size_; ++peer) add(peer);
      return;
    case Shape::binomial:
    case Shape::double_tree:
      return tree(round, member, true, messages);
  }
}

void GroupPattern::receives(int round, int member, std::vector<Message>& messages) const {
  messages.clear();
  const auto add = [&](int peer) { messages.push_back(between(round, peer, member, peer)); };
  switch (shape_) {
    case Shape::ring:
      return add(wrap(member - 1, size_));
    case Shape::chain:
      if (member == (reduces_ ? size_ - 2 - round : round + 1)) add(reduces_ ? member + 1 : member - 1);
      return;
    case Shape::exchange:
      return exchange(round, member, -1, messages);
    case Shape::gather_scattered:
      for (int distance = 1; member != 0 && distance < size_; ++distance) add(wrap(member - distance, size_));
      return;
    case Shape::to_root:
      for (int peer = 1; member == 0 && peer < size_; ++peer) add(peer);
      return;
    case Shape::from_root:
      if (member != 0) add(0);
      return;
    case Shape::binomial:
    case Shape::double_tree:
      return tree(round, member, false, messages);
  }
}

int piece_of_member(Algorithm algorithm, int size, int member) {
  if (!traits_of(algorithm).is_staged) return member;
  int piece = 0;
  int stride = 1;
  int run = size;
  for (const int factor : prime_factors(size)) {
    run /= factor;
    piece += member / stride % factor * run;
    stride *= factor;
  }
  return piece;
}

int member_of_piece(Algorithm algorithm, int size, int piece) {
  if (!traits_of(algorithm).is_staged) return piece;
  int member = 0;
  int stride = 1;
  int run = size;
  for (const int factor : prime_factors(size)) {
    run /= factor;
    member += piece / run * stride;
    piece %= run;
    stride *= factor;
  }
  return member;
}

std::vector<int> prime_factors(int size) {
  std::vector<int> factors;
  for (int factor = 2; factor * factor <= size; ++factor) {
    for (; size % factor == 0; size /= factor) factors.push_back(factor);
  }
  if (size > 1) factors.push_back(size);
  return factors;
}

std::vector<int> stage_sizes(Algorithm algorithm, int size) {
  return traits_of(algorithm).is_staged ? prime_factors(size) : std::vector{size};
}

void add_same_steps(Algorithm algorithm, int size, std::vector<SizedAlgorithm>& steps) {
  if (!traits_of(algorithm).is_staged) return steps.push_back({size, algorithm});
  for (const int factor : prime_factors(size)) {
    steps.push_back({factor, factor == 2 ? Algorithm::ring : Algorithm::two_shot});
  }
}

}  // namespace ddl::topology
