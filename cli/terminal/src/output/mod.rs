//! The only place that writes on stdout. Results go there, and nothing else: messages and progress are on
//! stderr.
//!
//! Every result has a JSON form (the value itself) and a [`Table`], which is shown as a table or as CSV.

mod cell;
mod csv;
pub mod human;
mod json;
pub mod natural;
mod table;
mod widths;

pub use cell::Cell;
pub use table::{Table, column, in_csv};

use crate::failure::Failure;
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: fits the terminal; plain text where it goes elsewhere
    Table,
    /// One value; indented on a terminal, else on one line
    Json,
    /// Every value as it is, with commas (RFC 4180): bytes, RFC 3339 times, empty where nothing is known
    Csv,
    /// A picture: of `plan --instance` and `plan --ahead`
    Svg,
    /// A page with the picture, the figures and the reasons: of `plan --instance` and `plan --ahead`
    Html,
}

impl Format {
    /// Whether it is a picture, which few results have.
    pub fn is_picture(self) -> bool {
        matches!(self, Self::Svg | Self::Html)
    }
}

/// Writes results in the form that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub format: Format,
}

impl Output {
    /// Refuses a picture where the result has none, before a command has any effect.
    pub fn refuse_picture(&self) -> Result<(), Failure> {
        if self.format.is_picture() {
            Err(no_picture())
        } else {
            Ok(())
        }
    }

    /// A value that is one table.
    pub fn show(&self, value: &impl Serialize, table: &Table) -> Result<(), Failure> {
        self.show_as(value, table, |width| table.render(width))
    }

    /// A value that reads better as text: `text` is told the width of the terminal, if there is one.
    pub fn show_as(
        &self,
        value: &impl Serialize,
        table: &Table,
        text: impl FnOnce(Option<u16>) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => json::write(value, io::stdout().is_terminal()).and_then(|text| write(&text)),
            Format::Csv => write(&csv::write(table)),
            Format::Table => write(&told(&text(terminal_width()))),
            Format::Svg | Format::Html => Err(no_picture()),
        }
    }

    /// A value on one line of JSON, whatever it goes to; else text.
    pub fn show_line(&self, value: &impl Serialize, table: &Table, text: String) -> Result<(), Failure> {
        match self.format {
            Format::Json => json::write(value, false).and_then(|text| write(&text)),
            Format::Csv => write(&csv::write(table)),
            Format::Table => write(&told(&text)),
            Format::Svg | Format::Html => Err(no_picture()),
        }
    }
}

fn no_picture() -> Failure {
    Failure::usage("this result has no picture: -o svg and -o html are for plan --instance and plan --ahead")
        .with_hint("use -o table, -o json or -o csv")
}

/// Writes text on stdout. A reader that has gone away has seen enough.
pub fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes())
            .and_then(|()| match text.ends_with('\n') || text.is_empty() {
                true => out.flush(),
                false => out.write_all(b"\n").and_then(|()| out.flush()),
            });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            crate::exit_code::ExitCode::Generic,
            format!("stdout can't be written: {error}"),
        )
        .with_hint("check the disk, or where the output goes")),
        _ => Ok(()),
    }
}

/// Says something on stderr, a line of its own.
pub fn say(text: &str) {
    // Nobody is left to be told where stderr is gone.
    let _ = writeln!(io::stderr().lock(), "{}", told(text));
}

/// A text formatted for people.
fn told(text: &str) -> String {
    human::broken_into_lines(&human::moments_told(text))
}

/// Whether stdout is a terminal, and no pager.
pub fn is_on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal that messages go to.
pub fn width_of_messages() -> Option<u16> {
    columns(terminal_size::terminal_size_of(io::stderr()))
}

/// Columns of the terminal that stdout goes to; elsewhere what COLUMNS says, which a shell exports where its user wants that.
fn terminal_width() -> Option<u16> {
    columns(terminal_size::terminal_size_of(io::stdout()))
}

fn columns(of: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<u16> {
    /// Smaller widths are ignored.
    const LEAST: u16 = 20;
    let wanted = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = of.map(|(terminal_size::Width(columns), _)| columns);
    width.or_else(wanted).filter(|columns| *columns >= LEAST)
}

/// Names and values, for things that are no list.
pub fn pairs(value: &impl serde::Serialize) -> Table {
    let mut table = Table::new(["NAME", "VALUE"]);
    for (name, value) in human::pairs(value) {
        table.row([name, value]);
    }
    table
}

/// The word that JSON has for a value without members.
pub fn word(value: &impl serde::Serialize) -> Cell {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => Cell::text(text),
        _ => Cell::nothing(),
    }
}
