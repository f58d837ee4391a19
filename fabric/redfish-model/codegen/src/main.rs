//! Generates `poolwright-redfish-model`'s types from the CSDL that DMTF publishes.
//!
//!     cargo run              writes src/generated/ of the model crate
//!     cargo run -- --check   compares instead, exit 1 on a difference
//!                            (after it: another folder than the model crate's)
//!
//! `roots` says which types, `flatten` makes the `model` of the compiler's answer and of some `facts` that it
//! leaves out, `naming` names, `emit_types` and `emit_table` write.

mod emit_table;
mod emit_types;
mod facts;
mod flatten;
mod model;
mod naming;
mod roots;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, thread};

use nv_redfish_csdl_compiler::compiler::{
    Config, EntityTypeFilter, ExcerptDependencies, QualifiedName, SchemaBundle,
};
use nv_redfish_csdl_compiler::edmx::{Edmx, QualifiedTypeName};
use nv_redfish_csdl_compiler::optimizer::{Config as OptimizerConfig, optimize};
use nv_redfish_schema::glob_redfish_xml;

use crate::emit_types::File;
use crate::facts::Facts;
use crate::roots::Root;

/// The compiler recurses deeply over the schemas.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("src")
        .join("generated");
    let (check, folder) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (false, committed),
        ["--check"] => (true, committed),
        ["--check", folder] => (true, PathBuf::from(folder)),
        _ => {
            eprintln!("usage: poolwright-redfish-codegen [--check [FOLDER]]");
            return ExitCode::from(2);
        }
    };
    let outcome = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(check, &folder))
        .map_err(|why| format!("cannot start a thread: {why}"))
        .and_then(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("the generator panicked, see above".to_owned()))
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(check: bool, folder: &Path) -> Result<(), String> {
    let files = generate()?;
    if check {
        compare(folder, &files)
    } else {
        write(folder, &files)
    }
}

/// The text of every generated file.
fn generate() -> Result<Vec<File>, String> {
    let docs = glob_redfish_xml()
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
            Edmx::parse(&text).map_err(|e| format!("cannot parse {path}: {e}"))
        })
        .collect::<Result<Vec<_>, String>>()?;
    let roots = roots::roots();
    let names = roots
        .iter()
        .map(|root| declared_name(root, &docs))
        .collect::<Result<Vec<_>, String>>()?;
    // Links are followed to the roots only: the tree of all resources would come along otherwise.
    let patterns = roots
        .iter()
        .map(filter_pattern)
        .map(|p| p.parse().map_err(|e| format!("{p}: {e}")));
    let config = Config {
        entity_type_filter: EntityTypeFilter::new_restrictive(patterns.collect::<Result<_, String>>()?),
        excerpt_dependencies: ExcerptDependencies::Include,
        ..Config::default()
    };
    let facts = Facts::gather(&docs);
    let bundle = SchemaBundle::new(docs, Vec::new());
    let names: Vec<QualifiedName<'_>> = names.iter().map(Into::into).collect();
    let (compiled, _) = bundle
        .compile_named_types(&names, config)
        .map_err(|e| e.to_string())?;
    let compiled = optimize(compiled, &OptimizerConfig::default());
    let model = flatten::flatten(&compiled, &roots, &facts)?;
    emit_types::files(&model).map_err(|e| e.to_string())
}

/// Where CSDL declares a root first: `Fabric.Fabric`, or in the oldest version that has it.
fn declared_name(root: &Root, docs: &[Edmx]) -> Result<QualifiedTypeName, String> {
    let family = format!("{}.", root.schema);
    let namespaces: BTreeSet<String> = docs
        .iter()
        .flat_map(|doc| &doc.data_services.schemas)
        .filter(|schema| schema.entity_types.keys().any(|name| *name.inner() == root.name))
        .map(|schema| schema.namespace.to_string())
        .filter(|namespace| *namespace == root.schema || namespace.starts_with(&family))
        .collect();
    let namespace = namespaces
        .first()
        .ok_or_else(|| format!("no schema declares {}.{}", root.schema, root.name))?;
    format!("{namespace}.{}", root.name)
        .parse()
        .map_err(|_| format!("{namespace}.{} is no name", root.name))
}

fn filter_pattern(root: &Root) -> String {
    let version = if root.embedded { ".*" } else { "" };
    format!("{}{version}.{}", root.schema, root.name)
}

fn write(folder: &Path, files: &[File]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    for path in surplus(folder, files)? {
        fs::remove_file(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
    }
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
    }
    let lines: usize = files.iter().map(|(_, text)| text.lines().count()).sum();
    eprintln!("{} files, {lines} lines in {}", files.len(), folder.display());
    Ok(())
}

/// Names every file that is not as the generator would write it.
fn compare(folder: &Path, files: &[File]) -> Result<(), String> {
    let mut stale: Vec<String> = surplus(folder, files)?
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    for (name, text) in files {
        if fs::read_to_string(folder.join(name)).ok().as_ref() != Some(text) {
            stale.push(folder.join(name).display().to_string());
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the committed Redfish types differ from what the generator writes:\n  {}\nrun `cargo run` in fabric/redfish-model/codegen and commit the result",
        stale.join("\n  ")
    ))
}

/// Files in the folder that are no longer generated.
fn surplus(folder: &Path, files: &[File]) -> Result<Vec<PathBuf>, String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut surplus = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|e| format!("cannot list {}: {e}", folder.display()))?
            .path();
        let known = path
            .file_name()
            .is_some_and(|name| files.iter().any(|(file, _)| name == file.as_str()));
        if !known {
            surplus.push(path);
        }
    }
    Ok(surplus)
}
