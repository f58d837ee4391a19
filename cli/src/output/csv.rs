//! A table with commas (RFC 4180), with a header line.

use super::Table;

pub fn write(table: &Table) -> String {
    let mut text = String::new();
    let header = table
        .columns
        .iter()
        .map(|column| column.to_lowercase().replace(' ', "_"));
    line(&mut text, header);
    for row in &table.rows {
        line(&mut text, row.iter().cloned());
    }
    text
}

fn line(text: &mut String, fields: impl Iterator<Item = String>) {
    let fields: Vec<String> = fields.map(|field| quoted(&field)).collect();
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
