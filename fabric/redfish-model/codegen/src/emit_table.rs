//! Writes the property table: what may be read, written and required, for the checks of request bodies.

use std::fmt::{self, Write as _};

use crate::model::{Access, Action, Field, Kind, Struct};
use crate::naming;

/// The static table of one struct.
pub fn table(out: &mut String, name: &str, found: &Struct) -> fmt::Result {
    writeln!(
        out,
        "\npub(crate) static {}: Type = Type {{",
        naming::static_name(name)
    )?;
    writeln!(out, "    name: {:?},", found.csdl)?;
    writeln!(out, "    odata_type: {:?},", found.odata_type.as_deref())?;
    writeln!(out, "    open: {},", found.open)?;
    writeln!(out, "    empty: || Box::new({name}::default()),")?;
    properties(out, "    ", &found.fields)?;
    out.push_str("    actions: &[\n");
    for action in &found.actions {
        action_table(out, action)?;
    }
    out.push_str("    ],\n};\n");
    Ok(())
}

fn action_table(out: &mut String, action: &Action) -> fmt::Result {
    writeln!(
        out,
        "        ActionSchema {{\n            name: {:?},",
        action.wire
    )?;
    properties(out, "            ", &action.parameters)?;
    out.push_str("        },\n");
    Ok(())
}

fn properties(out: &mut String, indent: &str, fields: &[Field]) -> fmt::Result {
    let name = if indent.len() > 4 {
        "parameters"
    } else {
        "properties"
    };
    writeln!(out, "{indent}{name}: &[")?;
    for field in fields {
        let access = match field.access {
            Access::Create => "create",
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read_write",
        };
        write!(
            out,
            "{indent}    Property::{access}({:?}, {})",
            field.wire,
            kind(&field.kind)
        )?;
        for (set, call) in [
            (field.many, "many"),
            (field.nullable, "nullable"),
            (field.required, "required"),
            (field.required_on_create, "required_on_create"),
        ] {
            if set {
                write!(out, ".{call}()")?;
            }
        }
        for (bound, call) in [(field.range.least, "at_least"), (field.range.most, "at_most")] {
            if let Some(bound) = bound {
                write!(out, ".{call}({bound})")?;
            }
        }
        out.push_str(",\n");
    }
    writeln!(out, "{indent}],")
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Boolean => "Kind::Boolean".to_owned(),
        Kind::Integer => "Kind::Integer".to_owned(),
        Kind::Decimal => "Kind::Decimal".to_owned(),
        Kind::Text => "Kind::Text".to_owned(),
        Kind::DateTime => "Kind::DateTime".to_owned(),
        Kind::Duration => "Kind::Duration".to_owned(),
        Kind::Guid => "Kind::Guid".to_owned(),
        Kind::Enum(name) => format!("Kind::Enum({name}::MEMBERS)"),
        // The statics by name: through the constants the tables' circles could not be evaluated.
        Kind::Object(name) => format!("Kind::Object(&{})", naming::static_name(name)),
        Kind::Link(Some(name)) => format!("Kind::Link(Some(&{}))", naming::static_name(name)),
        Kind::Link(None) => "Kind::Link(None)".to_owned(),
        Kind::Action => "Kind::Object(Action::SCHEMA)".to_owned(),
    }
}
