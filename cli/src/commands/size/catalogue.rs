//! `size --list`: the kinds of GPU, the models, the rules and the kinds of `config.json` that are known.

use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::output::{Cell, Output, Table, column};
use clap::ValueEnum;
use poolwright_model::profile::Profiles;
use poolwright_sizing::{Catalogue, Rule, hub_config};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Known {
    /// Kinds of GPU, as --kind takes them
    Kinds,
    /// Models; a size such as 70B stands for any other
    Models,
    /// Published rules of thumb, as --rule takes them
    Rules,
    /// Kinds of model that are read from a config.json, by its model_type
    ModelTypes,
}

pub fn list(known: Known, output: Output) -> Outcome {
    match known {
        Known::Kinds => kinds(output),
        Known::Models => models(output),
        Known::Rules => rules(output),
        Known::ModelTypes => model_types(output),
    }
}

fn kinds(output: Output) -> Outcome {
    let kinds = Profiles::builtin().all();
    let mut table = Table::new([
        column("KIND").named("name"),
        column("CALLED").named("model"),
        column("VENDOR"),
        column("MEMORY").named("memory_bytes"),
        column("POWER").named("power_w"),
        column("PRICE").named("price_usd"),
    ]);
    for kind in kinds {
        table.row([
            Cell::text(&kind.name),
            Cell::text(kind.display_name()),
            Cell::text(&kind.vendor),
            match kind.is_estimated() {
                true => Cell::both(format!("{} (estimate)", kind.usable()), kind.usable().0),
                false => Cell::bytes(kind.usable()),
            },
            Cell::watts(kind.tdp_w),
            Cell::dollars(kind.price_usd),
        ]);
    }
    output.show(&kinds, &table)?;
    Ok(ExitCode::Ok)
}

fn models(output: Output) -> Outcome {
    let models = Catalogue::builtin().all();
    let mut table = Table::new([
        column("MODEL").named("name"),
        column("PARAMETERS").named("params"),
        column("ALSO CALLED").named("aliases").if_any(),
    ]);
    for model in &models {
        let billions = format!("{:.1} billion", model.params as f64 / 1e9);
        table.row([
            Cell::text(&model.name),
            Cell::both(billions, model.params),
            Cell::list(&model.aliases),
        ]);
    }
    output.show(&models, &table)?;
    Ok(ExitCode::Ok)
}

fn rules(output: Output) -> Outcome {
    let rules = Rule::builtin();
    let mut table = Table::new([column("RULE").named("name"), column("SOURCE")]);
    for rule in rules {
        table.row([Cell::text(&rule.name), Cell::text(&rule.source)]);
    }
    output.show(&rules, &table)?;
    Ok(ExitCode::Ok)
}

fn model_types(output: Output) -> Outcome {
    let types = hub_config::model_types();
    let mut table = Table::new([column("MODEL TYPE").named("model_type")]);
    for model_type in &types {
        table.row([Cell::text(model_type)]);
    }
    output.show(&types, &table)?;
    Ok(ExitCode::Ok)
}
