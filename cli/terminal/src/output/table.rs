//! Rows under a header, for people and for programs. For people: aligned, numbers to the right, as wide as the
//! terminal at most (and as wide as it takes where there is none), columns without a value or without room left
//! out; names, figures, dates and headings are whole. For programs: every column, every value as it is.

use super::Cell;
use super::human::{broken_into_lines, wrapped};
use super::widths::{self, Breaks, Fitted, GAP, Goes, Need};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use std::collections::BTreeSet;

/// A moment without its seconds and its zone.
const MINUTE: &str = "2026-11-26 02:48";

/// A column: what it is called, and who sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    header: String,
    /// In CSV.
    pub(super) name: String,
    seen_by: SeenBy,
    /// Left out of a table where no row has a value.
    if_any: bool,
    /// When it is left out of a table that is too wide for its terminal.
    goes: Goes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeenBy {
    All,
    People,
    Programs,
}

/// A column under this header; in CSV its name is the same in small letters.
pub fn column(header: &str) -> Column {
    Column {
        header: header.to_owned(),
        name: header.to_lowercase().replace(' ', "_"),
        seen_by: SeenBy::All,
        if_any: false,
        goes: Goes::Late,
    }
}

/// A column that only programs see.
pub fn in_csv(name: &str) -> Column {
    Column {
        seen_by: SeenBy::Programs,
        ..column(name)
    }
}

impl Column {
    /// What CSV calls it.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// People see it only where some row has a value.
    pub fn if_any(mut self) -> Self {
        self.if_any = true;
        self
    }

    /// People see it only where the terminal is wide enough; of several the last goes first.
    pub fn if_room(self) -> Self {
        self.goes(1)
    }

    /// The same, with the turn in which it goes: 1 first.
    pub fn goes(mut self, turn: u8) -> Self {
        self.goes = Goes::InTurn(turn);
        self
    }

    /// What a row is about, beside its first column: it never goes.
    pub fn key(mut self) -> Self {
        self.goes = Goes::Never;
        self
    }

    /// Programs do not see it: they have what it is made of.
    pub fn for_people(mut self) -> Self {
        self.seen_by = SeenBy::People;
        self
    }

    pub(super) fn is_in_csv(&self) -> bool {
        self.seen_by != SeenBy::People
    }
}

impl From<&str> for Column {
    fn from(header: &str) -> Self {
        column(header)
    }
}

/// Rows of cells under columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new<C: Into<Column>>(columns: impl IntoIterator<Item = C>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell a column.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As text within so many columns of a terminal.
    pub fn render(&self, width: Option<u16>) -> String {
        if self.rows.is_empty() {
            return "none\n".to_owned();
        }
        let shown: Vec<usize> = (0..self.columns.len()).filter(|at| self.is_shown(*at)).collect();
        let fitted = width.map(|width| self.fit(&shown, usize::from(width)));
        let widths = fitted.as_ref().map(|fitted| &fitted.widths);
        let is_short = fitted.as_ref().is_some_and(|fitted| fitted.is_short);
        let is_out = |place: usize| widths.is_some_and(|widths| widths[place].is_none());
        let places: Vec<usize> = (0..shown.len()).filter(|place| !is_out(*place)).collect();
        let mut drawn = comfy_table::Table::new();
        drawn
            .load_style(presets::NOTHING)
            .set_header(places.iter().map(|place| &self.columns[shown[*place]].header))
            .add_rows(self.rows.iter().map(|row| {
                places
                    .iter()
                    .map(|place| row.get(shown[*place]).map_or("", |cell| cell.told(is_short)))
            }));
        if let Some(width) = width {
            // The gap after the last column is cut off below.
            drawn
                .set_width(width.saturating_add(GAP as u16))
                .set_content_arrangement(ContentArrangement::Dynamic);
        }
        for (column, place) in drawn.column_iter_mut().zip(&places) {
            column.set_padding((0, GAP as u16));
            if self.is_of_figures(shown[*place]) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if let Some(wide) = widths.and_then(|widths| widths[*place]) {
                let wide = u16::try_from(wide + GAP).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(wide)));
            }
        }
        let mut text = String::new();
        for line in drawn.lines() {
            text.push_str(&broken_into_lines(line.trim_end()));
            text.push('\n');
        }
        let out = (0..shown.len()).filter(|place| is_out(*place));
        let out: Vec<&str> = out
            .map(|place| self.columns[shown[place]].header.as_str())
            .collect();
        let mut notes = Vec::new();
        if is_short {
            let zones: BTreeSet<&str> = places
                .iter()
                .filter(|place| self.is_of_moments(shown[**place]))
                .flat_map(|place| self.values(shown[*place]))
                .filter_map(|value| value.split(' ').next_back())
                .collect();
            if !zones.is_empty() {
                let zones: Vec<&str> = zones.into_iter().collect();
                notes.push(format!("times are {}", zones.join(" and ")));
            }
        }
        if !out.is_empty() {
            notes.push(format!(
                "no room for {}: use a wider terminal, or -o csv",
                out.join(", ")
            ));
        }
        if !notes.is_empty() {
            text.push_str(&wrapped(&notes.join("; "), width));
            text.push('\n');
        }
        text
    }

    /// The widths of these columns within a terminal.
    fn fit(&self, shown: &[usize], width: usize) -> Fitted {
        let need = |(place, at): (usize, &usize)| {
            let column = &self.columns[*at];
            let goes = if place == 0 { Goes::Never } else { column.goes };
            let longest = self.values(*at).map(|value| value.chars().count()).max();
            // What a row is about is typed again and copied: it is not broken over lines.
            let is_name = goes == Goes::Never && longest.is_some_and(|longest| longest <= width / 2);
            let is_of_moments = self.is_of_moments(*at);
            let breaks = match is_name || is_of_moments || self.is_of_figures(*at) {
                true => Breaks::Never,
                false => Breaks::Words,
            };
            let cells = self.rows.iter().filter_map(|row| row.get(*at));
            let need = Need::of(
                &column.header,
                cells.map(|cell| cell.shown.as_str()),
                breaks,
                goes,
            );
            match is_of_moments {
                true => need.or_short(MINUTE.len(), &column.header),
                false => need,
            }
        };
        widths::fit(&shown.iter().enumerate().map(need).collect::<Vec<_>>(), width)
    }

    fn is_of_moments(&self, at: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let mut cells = cells.filter(|cell| !cell.is_nothing()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.short.is_some())
    }

    fn is_of_figures(&self, at: usize) -> bool {
        let mut values = self.values(at).peekable();
        values.peek().is_some() && values.all(is_figure)
    }

    fn is_shown(&self, at: usize) -> bool {
        let column = &self.columns[at];
        column.seen_by != SeenBy::Programs && (!column.if_any || self.values(at).next().is_some())
    }

    /// What stands in a column, where something does.
    fn values(&self, at: usize) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().filter_map(move |row| row.get(at));
        cells
            .filter(|cell| !cell.is_nothing())
            .map(|cell| cell.shown.as_str())
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
    fn a_table_fits_its_terminal_and_names_stay_whole() {
        let text = sample().render(Some(30));
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("upstream") && text.contains("host-12"), "{text}");
    }

    #[test]
    fn words_and_figures_stay_whole_and_what_has_no_room_is_said() {
        let columns = [
            column("OPERATION"),
            column("KIND"),
            column("STATE"),
            column("BY").if_room(),
            column("CREATED").if_room(),
            column("MEMORY"),
            column("ERROR"),
        ];
        let mut table = Table::new(columns);
        let cells = [
            "op-019a-7c44-93d1-2f00aa11bb22",
            "recompose",
            "quarantined",
            "schedule nights",
            "2026-11-21 16:30:19 Europe/Berlin",
            "79.6 GiB",
            "the box did not answer in time",
        ];
        table.row(cells);
        let text = table.render(Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for whole in [
            "op-019a-7c44-93d1-2f00aa11bb22",
            "recompose",
            "quarantined",
            "79.6 GiB",
            "answer",
        ] {
            assert!(text.contains(whole), "{whole}: {text}");
        }
        assert!(
            text.ends_with("no room for BY, CREATED: use a wider terminal, or -o csv\n"),
            "{text}"
        );
        assert!(table.render(Some(200)).contains("Europe/Berlin"));
    }

    #[test]
    fn a_column_is_shown_to_whom_it_is_for() {
        let columns = || {
            [
                column("ID"),
                column("HOLDER").if_any(),
                in_csv("uuid"),
                column("AGE").for_people(),
            ]
        };
        let mut table = Table::new(columns());
        table.row([
            Cell::text("a"),
            Cell::nothing(),
            Cell::text("GPU-1"),
            Cell::text("3 h"),
        ]);
        assert_eq!(table.render(None), "ID  AGE\na   3 h\n");
        assert_eq!(super::super::csv::write(&table), "id,holder,uuid\na,,GPU-1\n");
        table.row([
            Cell::text("b"),
            Cell::text("web"),
            Cell::nothing(),
            Cell::nothing(),
        ]);
        assert!(table.render(None).starts_with("ID  HOLDER  AGE\n"));
    }

    #[test]
    fn no_rows_are_said_to_be_none() {
        assert_eq!(Table::new(["ID"]).render(None), "none\n");
    }
}
