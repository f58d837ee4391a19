//! Programs solved by microlp.

use super::Program;
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};

/// The value of each column.
pub(super) fn solve(program: &Program, nodes: u32) -> Option<Vec<f64>> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let columns: Vec<Variable> = program
        .costs
        .iter()
        .map(|cost| problem.add_binary_var(*cost))
        .collect();
    for row in &program.rows {
        let uses: Vec<_> = row
            .uses
            .iter()
            .map(|(column, used)| (columns[*column], *used))
            .collect();
        problem.add_constraint(&uses, ComparisonOp::Le, row.room);
    }
    let mut options = SolveOptions::default();
    options.node_limit = Some(nodes.into());
    let solved = problem.solve_with(options).ok()?.into_solution().ok()?;
    Some(columns.iter().map(|column| solved.var_value(*column)).collect())
}
