//! Just enough CSV (RFC 4180) for tables of cases: a header line, quoted fields, no line breaks in fields.

use std::borrow::Cow;
use std::collections::HashMap;

/// A line that is not CSV, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    #[error("line 1: no header")]
    NoHeader,
    #[error("no row under the header; is it a table of cases?")]
    NoRows,
    #[error("line {line}: {fields} fields under a header of {columns}")]
    Width {
        line: usize,
        fields: usize,
        columns: usize,
    },
    #[error("line {line}: a quote is not closed")]
    OpenQuote { line: usize },
}

/// A row, by column name.
pub struct Row<'a> {
    /// Counted from 1.
    pub line: usize,
    columns: &'a HashMap<String, usize>,
    fields: Vec<Cow<'a, str>>,
}

impl Row<'_> {
    /// Whether there is such a column.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The field, trimmed; None when the column is absent or the field empty.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&str> {
        let field = self.fields.get(*self.columns.get(column)?)?.trim();
        (!field.is_empty()).then_some(field)
    }
}

pub fn read(text: &str, mut each: impl FnMut(&Row<'_>)) -> Result<(), CsvError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or(CsvError::NoHeader)?;
    let columns: HashMap<String, usize> = split(header, 1)?
        .into_iter()
        .enumerate()
        .map(|(i, name)| (name.trim().to_ascii_lowercase(), i))
        .collect();
    let width = split(header, 1)?.len();
    for (index, text) in lines {
        let line = index + 1;
        let fields = split(text, line)?;
        if fields.len() != width {
            return Err(CsvError::Width {
                line,
                fields: fields.len(),
                columns: width,
            });
        }
        each(&Row {
            line,
            columns: &columns,
            fields,
        });
    }
    Ok(())
}

fn split(text: &str, line: usize) -> Result<Vec<Cow<'_, str>>, CsvError> {
    // Most lines have no quote, and their fields stand in them as they are.
    if !text.contains('"') {
        return Ok(text.split(',').map(Cow::Borrowed).collect());
    }
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                push(&mut fields, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => push(&mut fields, other),
        }
    }
    if quoted {
        return Err(CsvError::OpenQuote { line });
    }
    Ok(fields.into_iter().map(Cow::Owned).collect())
}

fn push(fields: &mut [String], c: char) {
    if let Some(field) = fields.last_mut() {
        field.push(c);
    }
}

/// A field for output, quoted where it must be.
pub(crate) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " "))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_name() {
        let mut seen = Vec::new();
        read(
            "id,What\r\n1,\"q,v\"\r\n\r\n2,\"say \"\"hi\"\"\"\r\n3,\r\n",
            |row| {
                seen.push((
                    row.line,
                    row.get("id").map(str::to_owned),
                    row.get("what").map(str::to_owned),
                ));
            },
        )
        .unwrap();
        assert_eq!(seen[0], (2, Some("1".into()), Some("q,v".into())));
        assert_eq!(seen[1], (4, Some("2".into()), Some("say \"hi\"".into())));
        assert_eq!(seen[2], (5, Some("3".into()), None));
    }

    #[test]
    fn broken_lines_are_named() {
        let read = |text: &str| read(text, |_| {}).unwrap_err().to_string();
        assert_eq!(read(""), "line 1: no header");
        assert_eq!(read("a,b\n1,2\n1\n"), "line 3: 1 fields under a header of 2");
        assert_eq!(read("a,b\n1,\"2\n"), "line 2: a quote is not closed");
    }

    #[test]
    fn fields_are_quoted_when_they_must_be() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
