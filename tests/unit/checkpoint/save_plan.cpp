// The planned save of a mesh: all of it is there once, and parts of ranks that do not agree are refused with
// what disagrees.

#include "checkpoint/save_plan.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/checkpoint_model.hpp"

namespace ztrain::save_plan_test {
namespace {

using namespace checkpoint;

/// Two stages and two tensor ranks: the first stage has the embedding and the layer, the second the rest.
struct Parts {
  explicit Parts(const std::function<void(int place, std::vector<ParameterShape>&)>& change = {}) {
    mesh[Axis::pipeline] = 2, mesh[Axis::shard] = 3, mesh[Axis::tensor] = 2;
    for (int place = 0; place < 4; ++place) {
      std::vector<ParameterShape> parameters = test::awkward_parameters(2);
      for (ParameterShape& p : parameters) p.unit = place / 2 == 0 ? (p.unit == 2 ? -1 : p.unit) : p.unit - 2;
      for (ParameterShape& p : parameters) p.unit = std::max(p.unit, -1);
      if (change) change(place, parameters);
      const int units = place / 2 == 0 ? 2 : 1;
      const Coordinate first(mesh, place / 2 * 6 + place % 2);
      SavePart& part = parts.emplace_back(SavePart{Layout(parameters, {std::size_t(units), {3}}, first), {}});
      for (int unit = 0; unit < units; ++unit)
        for (const test::StateKind& kind : test::quantised_states(DType::bf16))
          part.states.push_back({kind.name, unit, kind.dtype, kind.granule});
    }
  }

  SavePlan plan(int files = 0) const {
    std::vector<const SavePart*> by_place;
    for (const SavePart& part : parts) by_place.push_back(&part);
    return plan_save(mesh, by_place, std::vector<std::int64_t>(12), files);
  }

  MeshShape mesh;
  std::vector<SavePart> parts;
};

TEST(SavePlan, HasEveryItemOnceInHoweverManyFiles) {
  std::int64_t elements_of_all = 0;
  for (const ParameterShape& p : test::awkward_parameters(2)) elements_of_all += elements(p.shape);
  for (const int files : {0, 1, 5, 100}) {
    const SavePlan plan = Parts().plan(files);
    EXPECT_EQ(std::ssize(plan.files), files == 0 ? 1 : std::min(files, 9)) << "three ranks own nothing";
    std::int64_t weights = 0;
    for (const auto& file : plan.files)
      for (const PlannedDataset& dataset : file.datasets)
        if (dataset.name.starts_with("model/")) weights += dataset.items;
    EXPECT_EQ(weights, elements_of_all) << files;
  }
}

/// Each rank of the axis expert has a slice of one parameter, a shard of another and a copy of a third.
struct ExpertParts {
  explicit ExpertParts(bool errors) {
    mesh[Axis::replicate] = 2, mesh[Axis::shard] = 3, mesh[Axis::expert] = 2;
    const std::vector<ParameterShape> parameters{{"norm.weight", {2300}, {}, 0},
                                                 {"experts.weight", {4, 700}, {0, 2, {}, Axis::expert}, 1},
                                                 {"bias", {900}, {}, 2}};
    const AxisSet axes = state_axes.without(Axis::expert);
    for (int expert = 0; expert < 2; ++expert) {
      parts.push_back({Layout(parameters, {{6}, {3, axes}, {3, axes}}, Coordinate(mesh, expert)), {}});
      for (int unit = 0; unit < 3; ++unit) {
        parts.back().states.push_back({"model", unit, DType::bf16});
        if (errors) parts.back().states.push_back({"optimizer/error", unit, DType::f32, 1, true});
      }
    }
  }

  SavePlan plan(int files) const {
    return plan_save(mesh, {&parts[0], &parts[1]}, std::vector<std::int64_t>(12), files);
  }

  MeshShape mesh;
  std::vector<SavePart> parts;
};

std::int64_t items_in(const SavePlan& plan, const std::string& state) {
  std::int64_t items = 0;
  for (const auto& file : plan.files)
    for (const PlannedDataset& dataset : file.datasets)
      if (dataset.name.starts_with(state + "/")) items += dataset.items;
  return items;
}

TEST(SavePlan, HasSlicesOverAnotherAxis) {
  for (const int files : {0, 4})
    EXPECT_EQ(items_in(ExpertParts(false).plan(files), "model"), 2300 + 4 * 700 + 900) << files;
}

/// Units have as many copies as their ranks over axes of tokens that do not cut them.
TEST(SavePlan, HasStatesOfEachCopy) {
  for (const int files : {0, 4, 12}) {
    const SavePlan plan = ExpertParts(true).plan(files);
    EXPECT_EQ(std::ssize(plan.files), std::max(files, 1)) << "each rank saves";
    EXPECT_EQ(items_in(plan, "model"), 2300 + 4 * 700 + 900);
    for (const int copy : {0, 1, 2, 3})
      EXPECT_EQ(items_in(plan, copy_name("optimizer/error", copy)), copy < 2 ? 2300 + 4 * 700 + 900 : 900);
    EXPECT_EQ(plan.bytes(), (2300 + 4 * 700 + 900) * 2 + (2 * (2300 + 4 * 700) + 4 * 900) * 4);
  }
  ExpertParts one_lacks(true);
  for (SavePart& part : one_lacks.parts) part.states[3].state = "optimizer/other";
  EXPECT_TRUE(test::contains(test::error_of([&] { one_lacks.plan(1); }),
                             "no rank has optimizer/error.copy0 of experts.weight to save"));
  SavePart plain = one_lacks.parts[0];
  for (StateForm& form : plain.states) form.of_each_copy = false;
  EXPECT_NE(lines_of(plain), lines_of(one_lacks.parts[0]));
}

/// Two ranks of a node follow each other in their shards, and are of two copies.
TEST(SavePlan, KeepsCopiesOfANodeApart) {
  const MeshShape mesh = test::mesh_of(2, 2, 1);
  const SavePart part{Layout({{"a", {512}, {}, 0}}, {{2}}),
                      {{"model", 0, DType::f32}, {"optimizer/error", 0, DType::f32, 1, true}}};
  const SavePlan plan = plan_save(mesh, {&part}, {0, 1, 1, 0}, 0);
  ASSERT_EQ(plan.files.size(), 2u);
  for (const PlannedShardFile& file : plan.files) {
    ASSERT_EQ(file.datasets.size(), 3u);
    for (const PlannedDataset& dataset : file.datasets) EXPECT_EQ(dataset.items, 256) << dataset.name;
    EXPECT_EQ(file.pieces, 3);
  }
}

TEST(SavePlan, NamesCopies) {
  EXPECT_EQ(copy_name("optimizer/error", 12), "optimizer/error.copy12");
  EXPECT_EQ(copy_in("optimizer/error.copy12"), 12);
  for (const char* other : {"model", "optimizer/error.copy", "optimizer/error.copy1x", "a.copy-"})
    EXPECT_EQ(copy_in(other), -1) << other;
}

struct Disagreement {
  const char* name;
  const char* said;
  void (*plant)(Parts&);
};

const Disagreement disagreements[] = {
    {"dtype", "model of model.layers.0.self_attn.q_proj.weight is bf16 on one rank and fp32 on another",
     [](Parts& p) { p.parts[1].states[5].dtype = DType::f32; }},
    {"granule", "optimizer/exp_avg.absmax has an item for every 256 elements in one place and for every 128",
     [](Parts& p) { p.parts[2].states[2].granule = 128; }},
    {"state_of_one_unit", "no rank has optimizer/exp_avg_sq.absmax of model.norm.weight to save",
     [](Parts& p) { p.parts[2].states.pop_back(); }},
    {"frozen_on_one_stage", "model.norm.weight is frozen on one rank and trained on another",
     [](Parts& p) {
       p = Parts([](int place, std::vector<ParameterShape>& all) { all[7].trainable = place < 2; });
     }},
    {"shape", "model.norm.weight has shape [13] on one rank and [14] on another",
     [](Parts& p) {
       p = Parts([](int place, std::vector<ParameterShape>& all) { all[7].shape = {place < 2 ? 13 : 14}; });
     }},
    {"cut", "ranks disagree on how model.layers.0.mlp.up_proj.weight is cut over the tensor axis",
     [](Parts& p) {
       p = Parts([](int place, std::vector<ParameterShape>& all) {
         if (place == 3) all[5].slice.begins = {0, 1, 23};
       });
     }},
    {"nobody_has_it", "no rank has model of model.norm.weight to save",
     [](Parts& p) { p = Parts([](int, std::vector<ParameterShape>& all) { all[7].unit = -1; }); }},
    {"two_stages_save_it", "model of model.norm.weight: 13 items from 0 on have more than one owner",
     [](Parts& p) { p = Parts([](int, std::vector<ParameterShape>& all) { all[7].unit = 0; }); }},
    {"state_of_a_frozen_one", "lm_head.weight is frozen and has optimizer/exp_avg",
     [](Parts& p) { p = Parts([](int, std::vector<ParameterShape>& all) { all[8].trainable = false; }); }},
};

class Refused : public testing::TestWithParam<Disagreement> {};

TEST_P(Refused, WithWhatDisagrees) {
  Parts parts;
  GetParam().plant(parts);
  const std::string said = test::error_of([&] { parts.plan(); });
  EXPECT_TRUE(test::contains(said, GetParam().said)) << said;
}

INSTANTIATE_TEST_SUITE_P(Disagreements, Refused, testing::ValuesIn(disagreements),
                         [](const auto& row) { return row.param.name; });

/// HDF5 gives a dataset one type.
TEST(SavePlan, HasOneDtypeInADataset) {
  const Catalog catalog{{{"model"}}, {{"a", {3}}, {"b", {3}}}};
  PieceRow a{.parameter = 0, .count = 3, .dtype = static_cast<std::int64_t>(DType::bf16)};
  PieceRow b{.parameter = 1, .count = 3, .dtype = static_cast<std::int64_t>(DType::f32)};
  std::vector<PieceRow*> rows{&b, &a};
  EXPECT_EQ(test::error_of([&] { lay_out(catalog, rows); }),
            "model of a is bf16, and that of b, which is of the same unit, is fp32");
  b.unit = 1;
  EXPECT_EQ(lay_out(catalog, rows).size(), 2u);
}

TEST(SavePlan, GoesOnInAnotherDatasetBeforeOneIsTooLarge) {
  const Catalog catalog{{{"model"}}, {{"a", {3}}}};
  std::vector<PieceRow> pieces(3);
  std::vector<PieceRow*> rows;
  for (PieceRow& piece : pieces) {
    piece.count = largest_dataset / 2;
    piece.slice_begin = std::ssize(rows) * piece.count;
    rows.push_back(&piece);
  }
  const auto datasets = lay_out(catalog, rows);
  ASSERT_EQ(datasets.size(), 2u);
  EXPECT_EQ(datasets[0].items, largest_dataset);
  EXPECT_EQ(datasets[1].name, "model/unit_0000.1");
  EXPECT_EQ(datasets[1].rows, 1u);
}

}  // namespace
}  // namespace ztrain::save_plan_test
