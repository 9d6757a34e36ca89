#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ddl/data_type.hpp"
#include "ddl/learning_rate_scaling.hpp"

namespace nmt {

enum class UnitType : std::uint8_t { lstm, gru, layer_norm_lstm, nas };
enum class EncoderType : std::uint8_t { uni, bi, gnmt };
enum class AttentionKind : std::uint8_t { none, luong, scaled_luong, bahdanau, normed_bahdanau };
enum class AttentionArchitecture : std::uint8_t { standard, gnmt, gnmt_v2 };
enum class InitOp : std::uint8_t { uniform, glorot_normal, glorot_uniform };
enum class OptimizerKind : std::uint8_t { sgd, momentum, adam, adamw, lamb, novograd };
enum class WarmupScheme : std::uint8_t { t2t, linear };
enum class DecayScheme : std::uint8_t {
  none,
  luong5,
  luong10,
  luong234,
  cosine,
  exp,
  poly,
  inverse_sqrt,
  piecewise,
  noam
};
enum class OnDivergence : std::uint8_t { stop, rollback };
enum class LossPer : std::uint8_t { sentence, word };
enum class SubwordOption : std::uint8_t { none, bpe, spm };
enum class DeviceKind : std::uint8_t { cpu, cuda };
enum class Dtype : std::uint8_t { f32, tf32, mixed };
enum class MixedType : std::uint8_t { automatic, bf16, f16 };
enum class LstmMethod : std::uint8_t { automatic, loop, wavefront, cudnn };
enum class LossScaling : std::uint8_t { automatic, off, constant, backoff, log_max };
enum class InferMode : std::uint8_t { greedy, sample, beam_search };

/// A value that a flag may have, and its name there.
template <typename Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

/// The values that a flag of the type may have, in the order of --help. Nothing else names them.
template <typename Enum>
inline constexpr std::array<Choice<Enum>, 0> choices_of{};

template <>
inline constexpr std::array choices_of<UnitType> =
    std::to_array<Choice<UnitType>>({{"lstm", UnitType::lstm},
                                     {"gru", UnitType::gru},
                                     {"layer_norm_lstm", UnitType::layer_norm_lstm},
                                     {"nas", UnitType::nas}});
template <>
inline constexpr std::array choices_of<EncoderType> = std::to_array<Choice<EncoderType>>(
    {{"uni", EncoderType::uni}, {"bi", EncoderType::bi}, {"gnmt", EncoderType::gnmt}});
template <>
inline constexpr std::array choices_of<AttentionKind> =
    std::to_array<Choice<AttentionKind>>({{"", AttentionKind::none},
                                          {"luong", AttentionKind::luong},
                                          {"scaled_luong", AttentionKind::scaled_luong},
                                          {"bahdanau", AttentionKind::bahdanau},
                                          {"normed_bahdanau", AttentionKind::normed_bahdanau}});
template <>
inline constexpr std::array choices_of<AttentionArchitecture> =
    std::to_array<Choice<AttentionArchitecture>>({{"standard", AttentionArchitecture::standard},
                                                  {"gnmt", AttentionArchitecture::gnmt},
                                                  {"gnmt_v2", AttentionArchitecture::gnmt_v2}});
template <>
inline constexpr std::array choices_of<InitOp> =
    std::to_array<Choice<InitOp>>({{"uniform", InitOp::uniform},
                                   {"glorot_normal", InitOp::glorot_normal},
                                   {"glorot_uniform", InitOp::glorot_uniform}});
template <>
inline constexpr std::array choices_of<OptimizerKind> =
    std::to_array<Choice<OptimizerKind>>({{"sgd", OptimizerKind::sgd},
                                          {"momentum", OptimizerKind::momentum},
                                          {"adam", OptimizerKind::adam},
                                          {"adamw", OptimizerKind::adamw},
                                          {"lamb", OptimizerKind::lamb},
                                          {"novograd", OptimizerKind::novograd}});
template <>
inline constexpr std::array choices_of<WarmupScheme> =
    std::to_array<Choice<WarmupScheme>>({{"t2t", WarmupScheme::t2t}, {"linear", WarmupScheme::linear}});
template <>
inline constexpr std::array choices_of<DecayScheme> =
    std::to_array<Choice<DecayScheme>>({{"", DecayScheme::none},
                                        {"luong5", DecayScheme::luong5},
                                        {"luong10", DecayScheme::luong10},
                                        {"luong234", DecayScheme::luong234},
                                        {"cosine", DecayScheme::cosine},
                                        {"exp", DecayScheme::exp},
                                        {"poly", DecayScheme::poly},
                                        {"inverse_sqrt", DecayScheme::inverse_sqrt},
                                        {"piecewise", DecayScheme::piecewise},
                                        {"noam", DecayScheme::noam}});
template <>
inline constexpr std::array choices_of<OnDivergence> =
    std::to_array<Choice<OnDivergence>>({{"stop", OnDivergence::stop}, {"rollback", OnDivergence::rollback}});
template <>
inline constexpr std::array choices_of<LossPer> =
    std::to_array<Choice<LossPer>>({{"sentence", LossPer::sentence}, {"word", LossPer::word}});
template <>
inline constexpr std::array choices_of<ddl::ScalingRule> =
    std::to_array<Choice<ddl::ScalingRule>>({{"none", ddl::ScalingRule::none},
                                             {"linear", ddl::ScalingRule::linear},
                                             {"square_root", ddl::ScalingRule::square_root}});
template <>
inline constexpr std::array choices_of<ddl::ScheduleUnit> = std::to_array<Choice<ddl::ScheduleUnit>>(
    {{"updates", ddl::ScheduleUnit::updates}, {"samples", ddl::ScheduleUnit::samples}});
template <>
inline constexpr std::array choices_of<SubwordOption> = std::to_array<Choice<SubwordOption>>(
    {{"", SubwordOption::none}, {"bpe", SubwordOption::bpe}, {"spm", SubwordOption::spm}});
/// Of gradients between hosts.
template <>
inline constexpr std::array choices_of<ddl::DataType> = std::to_array<Choice<ddl::DataType>>(
    {{"f32", ddl::DataType::f32}, {"bf16", ddl::DataType::bf16}, {"f16", ddl::DataType::f16}});
template <>
inline constexpr std::array choices_of<Dtype> =
    std::to_array<Choice<Dtype>>({{"f32", Dtype::f32}, {"tf32", Dtype::tf32}, {"mixed", Dtype::mixed}});
template <>
inline constexpr std::array choices_of<MixedType> = std::to_array<Choice<MixedType>>(
    {{"auto", MixedType::automatic}, {"bf16", MixedType::bf16}, {"f16", MixedType::f16}});
template <>
inline constexpr std::array choices_of<LstmMethod> =
    std::to_array<Choice<LstmMethod>>({{"auto", LstmMethod::automatic},
                                       {"loop", LstmMethod::loop},
                                       {"wavefront", LstmMethod::wavefront},
                                       {"cudnn", LstmMethod::cudnn}});
template <>
inline constexpr std::array choices_of<LossScaling> =
    std::to_array<Choice<LossScaling>>({{"auto", LossScaling::automatic},
                                        {"off", LossScaling::off},
                                        {"static", LossScaling::constant},
                                        {"backoff", LossScaling::backoff},
                                        {"log_max", LossScaling::log_max}});
template <>
inline constexpr std::array choices_of<DeviceKind> =
    std::to_array<Choice<DeviceKind>>({{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}});
template <>
inline constexpr std::array choices_of<InferMode> = std::to_array<Choice<InferMode>>(
    {{"greedy", InferMode::greedy}, {"sample", InferMode::sample}, {"beam_search", InferMode::beam_search}});

/// The name of one of the type's choices.
template <typename Enum>
requires(!choices_of<Enum>.empty()) constexpr std::string_view name_of(Enum value) {
  return std::ranges::find(choices_of<Enum>, value, &Choice<Enum>::value)->name;
}

}  // namespace nmt
