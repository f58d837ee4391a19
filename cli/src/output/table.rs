//! Rows under a header: aligned, numbers to the right; as wide as the terminal at most, and as wide as it
//! takes where there is none.

use comfy_table::{CellAlignment, ContentArrangement, presets};

/// Rows of text under column names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            columns: columns.into_iter().map(str::to_owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell a column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As text within so many columns.
    pub fn render(&self, width: Option<u16>) -> String {
        if self.rows.is_empty() {
            return "none\n".to_owned();
        }
        let mut drawn = comfy_table::Table::new();
        drawn
            .load_style(presets::NOTHING)
            .set_header(&self.columns)
            .add_rows(&self.rows);
        if let Some(width) = width {
            drawn
                .set_width(width)
                .set_content_arrangement(ContentArrangement::Dynamic);
        }
        for (index, column) in drawn.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            let mut cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(index))
                .filter(|cell| *cell != "-")
                .peekable();
            if cells.peek().is_some() && cells.all(|cell| is_figure(cell)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        for line in drawn.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number, with a unit or without.
fn is_figure(cell: &str) -> bool {
    const UNITS: [&str; 9] = ["", "B", "KiB", "MiB", "GiB", "TiB", "GB", "W", "kW"];
    let number = cell.trim_start_matches('$');
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
    number.len() > unit.len() && UNITS.contains(&unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["ID", "GPUS", "NOTE"]);
        table.row(["host-1", "8", "reaches box-1 and box-2 over two upstream ports"]);
        table.row(["host-12", "16", "-"]);
        table
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let text = sample().render(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ID       GPUS  NOTE");
        assert_eq!(
            lines[1],
            "host-1      8  reaches box-1 and box-2 over two upstream ports"
        );
        assert_eq!(lines[2], "host-12    16  -");
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let text = sample().render(Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("upstream"), "{text}");
    }

    #[test]
    fn no_rows_are_said_to_be_none() {
        assert_eq!(Table::new(["ID"]).render(None), "none\n");
    }
}
