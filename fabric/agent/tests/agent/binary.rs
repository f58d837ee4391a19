//! The `poolwright-agent` binary.

use crate::tree::{gpu_config, host};
use poolwright_agent::inventory;
use poolwright_pcie::Nvml;
use serde_json::Value;
use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_poolwright-agent"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn its_inventory_is_that_of_the_library() {
    let (host, _) = host(&gpu_config());
    let root = host.root.path();
    let shown = agent(&["inventory", "-o", "json", "--root", root.to_str().unwrap()]);
    assert!(shown.status.success(), "{shown:?}");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let expected = serde_json::to_value(inventory(root, &Nvml::not_asked())).unwrap();
    assert_eq!(shown, expected);
}

#[test]
fn pictures_are_no_form_of_output() {
    let refused = agent(&["inventory", "-o", "svg"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("possible values: table, json, csv"), "{said}");
}

#[test]
fn values_that_cannot_be_parsed_are_refused_with_those_that_can() {
    for (arguments, allowed) in [
        (
            &["verify", "0000:00:01.0", "--bars", "many"][..],
            "allowed: a whole number, such as 8",
        ),
        (
            &["serve", "--listen", "nope"],
            "allowed: ADDRESS:PORT, such as 127.0.0.1:8443",
        ),
    ] {
        let refused = agent(arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(allowed), "{said}");
    }
}
