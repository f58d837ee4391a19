//! Programs solved by HiGHS.

use super::Program;
use highs::{HighsModelStatus, HighsSolutionStatus, RowProblem, Sense};
use std::num::NonZeroU32;

/// The value of each column.
pub(super) fn solve(program: &Program, nodes: u32) -> Option<Vec<f64>> {
    let mut problem = RowProblem::default();
    let columns: Vec<_> = program
        .costs
        .iter()
        .map(|cost| problem.add_integer_column(*cost, 0..=1))
        .collect();
    for row in &program.rows {
        let uses = row.uses.iter().map(|(column, used)| (columns[*column], *used));
        problem.add_row(..=row.room, uses);
    }
    let mut model = problem.try_optimise(Sense::Minimise).ok()?;
    model.make_quiet();
    // One thread and one seed: the same program has the same answer.
    model.set_threads(NonZeroU32::MIN);
    model.try_set_option("random_seed", 0).ok()?;
    model
        .try_set_option("mip_max_nodes", i32::try_from(nodes).ok()?)
        .ok()?;
    // Its own stop, a gap of 1e-4, is not the least.
    model.try_set_option("mip_rel_gap", 0.0).ok()?;
    let solved = model.try_solve().ok()?;
    let is_answer = matches!(solved.status(), HighsModelStatus::Optimal)
        || matches!(solved.primal_solution_status(), HighsSolutionStatus::Feasible);
    is_answer.then(|| solved.get_solution().columns().to_vec())
}
