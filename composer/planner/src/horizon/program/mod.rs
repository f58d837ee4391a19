//! A program of yes and no: which columns to take, so that together they cost least and no row holds more than it may.
//!
//! It says what is asked and leaves the answer to a solver: microlp, which is Rust alone, or HiGHS (the feature `highs`),
//! which is built from C++. Both stop after a number of nodes of branch and bound, not after a time, so that the same
//! program has the same answer on every machine.

#[cfg(feature = "highs")]
mod highs;
#[cfg(any(not(feature = "highs"), test))]
mod microlp;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    /// Of each column, if it is taken.
    costs: Vec<f64>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    /// Columns, and how much of the room each takes.
    uses: Vec<(usize, f64)>,
    room: f64,
}

impl Program {
    pub fn new(costs: impl IntoIterator<Item = f64>) -> Self {
        Self {
            costs: costs.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// The columns together use no more than there is room for. A row that can't bind is left out.
    pub fn at_most(&mut self, uses: Vec<(usize, f64)>, room: f64) {
        if uses.iter().map(|(_, used)| used).sum::<f64>() > room {
            self.rows.push(Row { uses, room });
        }
    }

    /// Which columns to take: those that cost least, or the best known when the nodes are spent. `None`: none was found.
    pub fn solve(&self, nodes: u32) -> Option<Vec<usize>> {
        #[cfg(feature = "highs")]
        let values = highs::solve(self, nodes)?;
        #[cfg(not(feature = "highs"))]
        let values = microlp::solve(self, nodes)?;
        Some(taken(&values))
    }
}

fn taken(values: &[f64]) -> Vec<usize> {
    (0..values.len()).filter(|column| values[*column] > 0.5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns that are worth something, and rows that hold not all of them.
    fn scarce(seed: u64) -> Program {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut program = Program::new((0..12).map(|_| f64::from(rng.i32(-90..10))));
        for _ in 0..5 {
            let uses: Vec<_> = (0..12).map(|column| (column, f64::from(rng.u8(0..5)))).collect();
            program.at_most(uses, f64::from(rng.u8(4..12)));
        }
        program
    }

    /// What the columns cost; `None` where a row is overfull.
    fn cost(program: &Program, taken: &[usize]) -> Option<f64> {
        let fits = |row: &Row| {
            let used = row.uses.iter().filter(|(column, _)| taken.contains(column));
            used.map(|(_, used)| used).sum::<f64>() <= row.room
        };
        let sum = taken.iter().map(|column| program.costs[*column]).sum();
        program.rows.iter().all(fits).then_some(sum)
    }

    /// Of all choices, tried one by one, the cheapest.
    fn least(program: &Program) -> f64 {
        let choices = (0..1_usize << 12).map(|bits| {
            (0..12)
                .filter(|column| bits >> column & 1 == 1)
                .collect::<Vec<_>>()
        });
        choices
            .filter_map(|taken| cost(program, &taken))
            .fold(0.0, f64::min)
    }

    #[test]
    fn every_solver_finds_the_least_of_all_choices() {
        let solvers = [
            ("microlp", microlp::solve as fn(&Program, u32) -> Option<Vec<f64>>),
            #[cfg(feature = "highs")]
            ("highs", highs::solve),
        ];
        for (name, solve) in solvers {
            for seed in 0..40 {
                let program = scarce(seed);
                let taken = taken(&solve(&program, 1_000).unwrap());
                assert_eq!(
                    cost(&program, &taken),
                    Some(least(&program)),
                    "{name}, seed {seed}: {program:?}"
                );
            }
        }
    }
}
