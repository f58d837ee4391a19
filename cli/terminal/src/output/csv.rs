//! A table with commas (RFC 4180), with a header line.

use super::Table;

pub fn write(table: &Table) -> String {
    let places: Vec<usize> = (0..table.columns.len())
        .filter(|at| table.columns[*at].is_in_csv())
        .collect();
    let mut text = String::new();
    line(
        &mut text,
        places.iter().map(|at| table.columns[*at].name.as_str()),
    );
    for row in &table.rows {
        let field = |at: &usize| row.get(*at).map_or("", |cell| cell.raw.as_str());
        line(&mut text, places.iter().map(field));
    }
    text
}

fn line<'a>(text: &mut String, fields: impl Iterator<Item = &'a str>) {
    let fields: Vec<String> = fields.map(quoted).collect();
    text.push_str(&fields.join(","));
    text.push('\n');
}

fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_or_a_quote_is_quoted() {
        let mut table = Table::new(["ID", "WHY NOT"]);
        table.row(["gpu-1", "soldered: \"HGX\", 8 GPUs"]);
        assert_eq!(
            write(&table),
            "id,why_not\ngpu-1,\"soldered: \"\"HGX\"\", 8 GPUs\"\n"
        );
    }
}
