//! Who may use whom, as a table: data goes one way through the house, and the pure rooms stay pure.
//!
//! Judged over `cargo metadata`, so that a line in a `Cargo.toml` is enough to be caught. Dependencies of
//! tests are left out: a test may use what it likes.

use std::{collections::BTreeSet, fs};

use poolwright_tests::workspace::{Workspace, committed_texts, tree_to_judge};

/// One room: the crates of this workspace that it may depend on, and why no more.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
    why: &'static str,
}

const ROOMS: &[Room] = &[
    room(
        "model",
        &[],
        "words that everybody speaks: it speaks nobody else's",
    ),
    room(
        "redfish-model",
        &[],
        "wire types, usable by client, emulator and service without our words",
    ),
    room(
        "driver",
        &["model"],
        "traits at the metal; implementations come from elsewhere",
    ),
    room(
        "redfish",
        &["model", "driver", "redfish-model"],
        "a driver knows the metal, not who asks",
    ),
    room(
        "emulator",
        &["model", "driver", "redfish-model"],
        "a second reading of the wire: none of the client",
    ),
    room("pcie", &[], "what one machine shows: usable without a pool"),
    room(
        "agent",
        &["model", "driver", "pcie", "terminal"],
        "speaks for one host, and knows no other",
    ),
    room(
        "terminal",
        &["model", "driver", "redfish"],
        "command-line support of both programs; a manager is reached through the Redfish client",
    ),
    room(
        "qemu",
        &["model", "driver"],
        "a driver of a lab: it knows QMP, not who asks",
    ),
    room(
        "inventory",
        &["model"],
        "a snapshot is a value; who collected it does not matter",
    ),
    room(
        "collector",
        &["model", "driver", "inventory"],
        "asks through the traits, whichever driver answers",
    ),
    room("sizing", &["model"], "pure: from a model and a task to bytes"),
    room(
        "planner",
        &["model", "inventory", "sizing"],
        "pure: from values to a plan",
    ),
    room(
        "simulator",
        &["model", "inventory", "sizing", "planner"],
        "pure: from recorded jobs to figures",
    ),
    room(
        "store",
        &["model"],
        "documents and a journal; their owners keep the types",
    ),
    room(
        "executor",
        &["model", "driver", "planner", "store"],
        "runs a plan at the traits, journaled",
    ),
    room(
        "service",
        &[
            "model",
            "driver",
            "inventory",
            "collector",
            "sizing",
            "planner",
            "simulator",
            "store",
            "executor",
        ],
        "the facade: everything but the concrete drivers",
    ),
    room(
        "northbound",
        &["model", "redfish-model", "service"],
        "thin: everything goes through the facade",
    ),
];

const fn room(name: &'static str, may_use: &'static [&'static str], why: &'static str) -> Room {
    Room { name, may_use, why }
}

/// The rooms that wire or test everything, and may name anything but each other.
const WIRING: &[&str] = &["cli", "tests"];

/// Crates that a room must not reach, however long the chain.
struct Unreachable {
    from: &'static [&'static str],
    target: &'static str,
    why: &'static str,
}

const PURE: &[&str] = &["model", "inventory", "sizing", "planner", "simulator"];

const UNREACHABLE: &[Unreachable] = &[
    Unreachable {
        from: PURE,
        target: "tokio",
        why: "pure code does not wait",
    },
    Unreachable {
        from: PURE,
        target: "mio",
        why: "pure code has no sockets",
    },
    Unreachable {
        from: PURE,
        target: "reqwest",
        why: "pure code calls nobody",
    },
    Unreachable {
        from: PURE,
        target: "axum",
        why: "pure code serves nobody",
    },
    Unreachable {
        from: PURE,
        target: "rusqlite",
        why: "pure code keeps nothing",
    },
    Unreachable {
        from: PURE,
        target: "tokio-postgres",
        why: "pure code keeps nothing",
    },
    Unreachable {
        from: PURE,
        target: "getrandom",
        why: "randomness comes in as a seed",
    },
    Unreachable {
        from: PURE,
        target: "poolwright-redfish-model",
        why: "wire types end at the driver",
    },
    Unreachable {
        from: &["driver"],
        target: "tokio",
        why: "the traits choose no runtime",
    },
    Unreachable {
        from: &["redfish-model"],
        target: "tokio",
        why: "wire types are data",
    },
    Unreachable {
        from: &["emulator"],
        target: "reqwest",
        why: "the emulator shares no code with the client",
    },
];

fn crate_name(room: &str) -> String {
    format!("poolwright-{room}")
}

/// Every edge that the table does not have.
fn wrong_edges(workspace: &Workspace) -> Vec<String> {
    let mut wrong = Vec::new();
    for member in workspace.members() {
        let room = member.name.strip_prefix("poolwright-").unwrap_or(&member.name);
        let used = workspace.uses(&member.name);
        if WIRING.contains(&room) {
            let other_wiring = WIRING.iter().map(|other| crate_name(other));
            wrong.extend(
                other_wiring
                    .filter(|other| used.contains(other.as_str()))
                    .map(|other| format!("{} uses {other}: both wire, neither is a library", member.name)),
            );
            continue;
        }
        let Some(rule) = ROOMS.iter().find(|rule| rule.name == room) else {
            wrong.push(format!("{} has no row in the table of rooms", member.name));
            continue;
        };
        let allowed: BTreeSet<_> = rule.may_use.iter().map(|used| crate_name(used)).collect();
        let extra = used.iter().filter(|used| !allowed.contains(**used));
        wrong.extend(extra.map(|extra| format!("{} uses {extra}: {}", member.name, rule.why)));
    }
    wrong
}

/// Every forbidden chain, written out.
fn wrong_chains(workspace: &Workspace) -> Vec<String> {
    let mut wrong = Vec::new();
    for rule in UNREACHABLE {
        for room in rule.from {
            if let Some(chain) = workspace.chain(&crate_name(room), rule.target) {
                wrong.push(format!("{}: {}", chain.join(" → "), rule.why));
            }
        }
    }
    wrong
}

#[test]
fn every_room_uses_only_what_the_table_allows() {
    let wrong = wrong_edges(&Workspace::load().unwrap());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_reach_no_runtime_and_no_wire_types() {
    let wrong = wrong_chains(&Workspace::load().unwrap());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_row_of_the_table_is_a_crate() {
    let workspace = Workspace::load().unwrap();
    let names: BTreeSet<_> = workspace.members().map(|member| member.name.as_str()).collect();
    for rule in ROOMS {
        assert!(
            names.contains(crate_name(rule.name).as_str()),
            "{} is in the table only",
            rule.name
        );
    }
}

#[test]
fn only_the_wiring_names_concrete_drivers_and_only_the_store_names_its_engine() {
    let workspace = Workspace::load().unwrap();
    for member in workspace.members() {
        let room = member.name.strip_prefix("poolwright-").unwrap_or(&member.name);
        let used = workspace.uses(&member.name);
        for driver in ["poolwright-redfish", "poolwright-emulator", "poolwright-qemu"] {
            assert!(
                !used.contains(driver) || WIRING.contains(&room) || room == "terminal",
                "{} names {driver}",
                member.name
            );
        }
        let manifest: toml::Table = fs::read_to_string(&member.manifest_path)
            .unwrap()
            .parse()
            .unwrap();
        for engine in ["rusqlite", "tokio-postgres"] {
            let named = manifest
                .get("dependencies")
                .is_some_and(|table| table.get(engine).is_some());
            assert!(
                !named || room == "store",
                "{} names {engine}: go through the store",
                member.name
            );
        }
    }
}

/// The manager and simulations decide about jobs by one function. What else judges waiting jobs would be a second queue.
#[test]
fn one_engine_decides_about_jobs() {
    let engine = "composer/planner/src/engine/";
    let mut defined = 0;
    for (path, text) in committed_texts(&tree_to_judge()).unwrap() {
        let path = path.to_string_lossy();
        if !path.starts_with("composer/") || !path.contains("/src/") {
            continue;
        }
        assert!(
            !path.starts_with("composer/planner/src/queue"),
            "{path}: the engine decides about jobs"
        );
        for line in ["fn replan(", "struct WaitingJob", "fn delays("] {
            let defines = text.contains(line);
            assert!(
                !defines || path.starts_with(engine),
                "{path}: {line} belongs to {engine}"
            );
            defined += usize::from(defines);
        }
    }
    assert_eq!(defined, 3, "the engine defines each");
}

/// The rules themselves: a workspace in which the planner reaches a crate called tokio, through sizing.
#[test]
fn a_wrong_edge_and_a_wrong_chain_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let members = [
        ("poolwright-store", "poolwright-planner"),
        ("poolwright-planner", "poolwright-sizing"),
        ("poolwright-sizing", "tokio"),
        ("poolwright-garage", "tokio"),
    ];
    let list = members.map(|(name, _)| format!("{name:?}")).join(", ");
    write(
        "Cargo.toml",
        &format!("[workspace]\nresolver = \"3\"\nmembers = [{list}]\nexclude = [\"tokio\"]\n"),
    );
    write(
        "tokio/Cargo.toml",
        "[package]\nname = \"tokio\"\nversion = \"9.0.0\"\n[workspace]\n",
    );
    write("tokio/src/lib.rs", "");
    for (name, uses) in members {
        let text = format!(
            "[package]\nname = {name:?}\nversion = \"0.0.0\"\n[dependencies]\n{uses} = {{ path = \"../{uses}\" }}\n"
        );
        write(&format!("{name}/Cargo.toml"), &text);
        write(&format!("{name}/src/lib.rs"), "");
    }
    let workspace = Workspace::load_from(dir.path()).unwrap();

    let edges = wrong_edges(&workspace).join("\n");
    assert!(
        edges.contains("poolwright-store uses poolwright-planner"),
        "{edges}"
    );
    assert!(edges.contains("poolwright-garage has no row"), "{edges}");
    assert!(
        !edges.contains("poolwright-planner uses"),
        "sizing is allowed: {edges}"
    );

    let chains = wrong_chains(&workspace).join("\n");
    assert!(
        chains.contains("poolwright-planner → poolwright-sizing → tokio"),
        "{chains}"
    );
    assert!(
        !chains.contains("poolwright-store"),
        "the store is not pure: {chains}"
    );
}
