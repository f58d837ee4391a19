//! Agents that have the right certificate, and lie.

use super::certificates::Authority;
use super::liar::{http, liar};
use super::{BOOT, LONG, SERIAL, manager, target};
use poolwright_driver::{DriverError, ErrorKind, HostSide};
use poolwright_model::fault::FaultKind;
use std::time::Duration;

/// What a manager makes of these bytes: of a look, and of a change.
async fn told(answer: Vec<u8>) -> [DriverError; 2] {
    let authority = Authority::new();
    let address = liar(&authority, answer).await;
    let manager = manager(&authority, &authority.manager(), address);
    let target = target(None, &[SERIAL]);
    let looked = manager.verify(&target, LONG).await.unwrap_err();
    let drained = manager.drain(&target, LONG).await.unwrap_err();
    [looked, drained]
}

fn said(said: &str) -> String {
    format!(
        r#"{{"version": "1.7", "boot_id": "{BOOT}", "epoch": null, "of the future": [1], "said": {said}}}"#
    )
}

#[tokio::test]
async fn what_makes_no_sense_is_no_answer_and_a_change_is_unknown_then() {
    for (answer, words) in [
        (b"\x15\x03\x01 no http".to_vec(), "gave no answer"),
        (http("200 OK", "<html>"), "can't be read"),
        (http("200 OK", &"[".repeat(100_000)), "can't be read"),
        (http("200 OK", &" ".repeat(2 << 20)), "more than 1048576 bytes"),
        (
            http("200 OK", r#"{"version": "2.0"}"#),
            "speaks version 2.0, and this manager 1.0",
        ),
        (
            http("200 OK", r#"{"version": "1.0", "said": {}}"#),
            "which start of its host",
        ),
        (
            http(
                "200 OK",
                r#"{"version": "1.0", "boot_id": "a\u001b[2Jb", "said": {}}"#,
            ),
            "which start of its host",
        ),
        (http("200 OK", &said("null")), "says nothing"),
        (http("500 Oh", &said("null")), "says nothing"),
        (http("302 Found", ""), "can't be read"),
    ] {
        let [looked, drained] = told(answer).await;
        assert_eq!(looked.kind, ErrorKind::NoEffect, "{looked}");
        assert_eq!(drained.kind, ErrorKind::OutcomeUnknown, "{drained}");
        assert!(looked.message.contains(words), "{words}: {looked}");
        assert!(!looked.message.contains('\u{1b}'), "{looked:?}");
    }
}

#[tokio::test]
async fn an_answer_about_another_gpu_is_refused() {
    let authority = Authority::new();
    let other = r#"{"verdict": "seen", "evidence": "I swear",
        "learned": [{"gpu": "gpu-2", "address": "0000:01:00.0"}]}"#;
    let address = liar(&authority, http("200 OK", &said(other))).await;
    let verifies = manager(&authority, &authority.manager(), address);
    let error = verifies.verify(&target(None, &[SERIAL]), LONG).await.unwrap_err();
    assert!(
        error
            .message
            .contains("answers for gpu-2, which it was not asked about"),
        "{error}"
    );
    let other = r#"[{"gpu": "gpu-2", "pid": 1, "command": "init"}]"#;
    let address = liar(&authority, http("200 OK", &said(other))).await;
    let asks = manager(&authority, &authority.manager(), address);
    let error = asks.holders(&target(None, &[SERIAL]), LONG).await.unwrap_err();
    assert!(error.message.contains("gpu-2"), "{error}");
}

#[tokio::test]
async fn names_that_are_none_are_refused_whether_it_is_seen_or_another_is() {
    let (seen, not_seen) = (r#""seen", "evidence": "I am""#, r#""not-seen", "reason": "no""#);
    let long = "9".repeat(65);
    for (verdict, name, what) in [
        (seen, r#""address": "a\u001b[2J""#.to_owned(), "address"),
        (seen, r#""address": "", "slot": "1\n2""#.to_owned(), "slot"),
        (
            seen,
            format!(r#""address": "", "pcie_serial": "{long}""#),
            "PCIe serial number",
        ),
        (
            not_seen,
            format!(r#""address": "", "board_serial": "{long}""#),
            "board serial number",
        ),
        (not_seen, format!(r#""address": "", "uuid": "{long}""#), "UUID"),
    ] {
        let body = format!(r#"{{"verdict": {verdict}, "learned": [{{"gpu": "gpu-1", {name}}}]}}"#);
        let authority = Authority::new();
        let address = liar(&authority, http("200 OK", &said(&body))).await;
        let verifies = manager(&authority, &authority.manager(), address);
        let error = verifies.verify(&target(None, &[SERIAL]), LONG).await.unwrap_err();
        assert_eq!(
            (error.kind, error.fault),
            (ErrorKind::NoEffect, FaultKind::Malformed)
        );
        let words = format!("tells of gpu-1 what is no {what}, ");
        assert!(error.message.contains(&words), "{error}");
        assert!(
            !error.message.contains('\u{1b}') && !error.message.contains(&long),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_newer_agent_is_understood_and_its_refusals_keep_their_kind() {
    let refusal = |kind: &str| {
        format!(
            r#"{{"version": "1.9", "boot_id": "{BOOT}", "error": {{"kind": "{kind}", "message": "because", "why": 1}}}}"#
        )
    };
    for (kind, expected) in [
        ("no-effect", ErrorKind::NoEffect),
        ("conflict", ErrorKind::Conflict),
        ("cannot-tell", ErrorKind::CannotTell),
        ("outcome-unknown", ErrorKind::OutcomeUnknown),
        ("a word of the future", ErrorKind::OutcomeUnknown),
    ] {
        let [looked, drained] = told(http("400 No", &refusal(kind))).await;
        assert_eq!((looked.kind, drained.kind), (expected, expected), "{kind}");
        assert!(looked.message.ends_with("because"), "{looked}");
    }
}

#[tokio::test]
async fn one_that_says_nothing_is_not_waited_for() {
    let authority = Authority::new();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let manager = manager(&authority, &authority.manager(), silent.local_addr().unwrap());
    let short = Duration::from_millis(200);
    let error = manager.drain(&target(None, &[SERIAL]), short).await.unwrap_err();
    assert!(
        error.message.contains("no answer to drain within 0.2 s"),
        "{error}"
    );
}
