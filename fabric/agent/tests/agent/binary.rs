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
fn a_picture_is_refused_before_it_enrols() {
    let folder = tempfile::tempdir().unwrap();
    let (token, dir) = (folder.path().join("token"), folder.path().join("agent"));
    std::fs::write(&token, "secret").unwrap();
    let refused = agent(&[
        "enrol",
        "--manager=http://127.0.0.1:1",
        "--pin=5f1c9f0e3c1d8a67b2f44a9e0c7d6b5a4f3e2d1c0b9a8f7e6d5c4b3a29181706",
        "--address=127.0.0.1:2",
        "--uuid=4c4c4544-0042-3510-8052-b4c04f4d3732",
        &format!("--token-file={}", token.display()),
        &format!("--dir={}", dir.display()),
        "-o",
        "svg",
    ]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no picture") && !dir.exists(), "{said}");
}
