//! `size --list`: the kinds of GPU, the models, the rules and the kinds of `config.json` that are known.

use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::output::{Cell, Output, Table, column};
use clap::ValueEnum;
use poolwright_model::profile::Profiles;
use poolwright_sizing::error::SizingError;
use poolwright_sizing::{Catalogue, Job, Rule, Task, hub_config, settings};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Settings, as --set takes them, with their values and the tasks that have them
    Settings,
}

pub fn list(known: Known, output: Output) -> Outcome {
    match known {
        Known::Kinds => kinds(output),
        Known::Models => models(output),
        Known::Rules => rules(output),
        Known::ModelTypes => model_types(output),
        Known::Settings => all_settings(output),
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

#[derive(Default, Serialize)]
struct Setting {
    values: String,
    tasks: Vec<&'static str>,
}

fn all_settings(output: Output) -> Outcome {
    let mut all: BTreeMap<&str, Setting> = BTreeMap::new();
    for task in Task::ALL {
        for name in settings::names(&Job::of(*task)) {
            let setting = all.entry(name).or_default();
            setting.tasks.push(task.name());
            // The error names the allowed values.
            if let Err(SizingError::BadValue { allowed, .. }) = settings::set(&mut Job::of(*task), name, "?")
            {
                setting.values = allowed;
            }
        }
    }
    let mut table = Table::new([column("SETTING").named("name"), column("TASKS"), column("VALUES")]);
    for (name, setting) in &all {
        table.row([
            Cell::text(*name),
            Cell::list(&setting.tasks),
            Cell::text(&setting.values),
        ]);
    }
    output.show(&all, &table)?;
    Ok(ExitCode::Ok)
}
