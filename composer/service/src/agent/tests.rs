//! The rules of tokens.

use super::*;

const ONE: &str = "4c4c4544-0042-3510-8052-b4c04f4d3732";
const OTHER: &str = "4c4c4544-0042-3510-8052-b4c04f4d3733";

fn noon() -> Timestamp {
    "2026-03-02T12:00:00Z".parse().unwrap()
}

fn maker() -> AccountVersion {
    AccountVersion {
        id: "9f86d081884c7d659a2feaa0c55ad015".to_owned(),
        generation: 0,
    }
}

fn made(uuids: &[&str], uses: Option<u32>) -> Result<(AgentToken, String), ServiceError> {
    let new = NewToken {
        uuids: uuids.iter().map(|uuid| (*uuid).to_owned()).collect(),
        seconds: None,
        uses,
    };
    new.make("0".repeat(ID_DIGITS), "admin", &maker(), noon())
}

fn agent() -> Agent {
    Agent {
        host: HostId::from_lossy("host-1"),
        uuid: ONE.to_owned(),
        address: "10.0.0.1:8444".to_owned(),
        enrolment: "e".repeat(32),
        key: String::new(),
        enrolled: noon(),
        by: "admin".to_owned(),
        ends: noon() + SignedDuration::from_hours(30 * 24),
        renewed: None,
        revoked: None,
    }
}

fn refused(result: Result<(), ServiceError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, ErrorCode::Forbidden, "{error}");
    assert!(error.hint.is_some() && !error.details.is_empty());
    error.message
}

#[test]
fn a_token_is_told_once_and_only_its_digest_is_kept() {
    let (token, text) = made(&[], None).unwrap();
    let (id, secret) = parts(&text).unwrap();
    assert_eq!(id, token.id);
    assert!(token.opens(secret));
    assert!(!token.opens(&"0".repeat(secret.len())));
    assert!(!serde_json::to_string(&token).unwrap().contains(secret));
    let (_, another) = made(&[], None).unwrap();
    assert_ne!(text, another);
    for wrong in [
        "",
        "x",
        &text[1..],
        &text.replace('0', "ä"),
        &"z".repeat(text.len()),
    ] {
        assert_eq!(parts(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_token_for_any_host_is_good_once_and_replaces_no_agent() {
    let (mut token, _) = made(&[], None).unwrap();
    token.admits(ONE, None, noon()).unwrap();
    let replaces = refused(token.admits(ONE, Some(&agent()), noon()));
    assert!(replaces.contains("host-1"), "{replaces}");
    let revoked = Agent {
        revoked: Some(noon()),
        ..agent()
    };
    token.admits(ONE, Some(&revoked), noon()).unwrap();
    token.used.insert(ONE.to_owned());
    assert!(refused(token.admits(OTHER, None, noon())).contains("used up"));
    assert!(made(&[], Some(2)).is_err(), "many unnamed hosts");
}

#[test]
fn a_token_for_named_hosts_is_good_once_for_each_and_replaces_an_agent() {
    let (mut token, _) = made(&[&ONE.to_uppercase(), ONE, OTHER], None).unwrap();
    assert_eq!(token.uses, 2, "a host that is named twice is one");
    token.admits(ONE, Some(&agent()), noon()).unwrap();
    let stranger = OTHER.replace("33", "34");
    assert!(refused(token.admits(&stranger, None, noon())).contains("not for the host"));
    token.used.insert(ONE.to_owned());
    assert!(refused(token.admits(ONE, None, noon())).contains("already"));
    token.admits(OTHER, None, noon()).unwrap();
    let (mut fewer, _) = made(&[ONE, OTHER], Some(1)).unwrap();
    fewer.used.insert(ONE.to_owned());
    assert!(refused(fewer.admits(OTHER, None, noon())).contains("used up"));
    assert!(made(&[ONE], Some(2)).is_err() && made(&[ONE], Some(0)).is_err());
}

#[test]
fn a_token_ends() {
    let (token, _) = made(&[ONE], None).unwrap();
    let last = token.ends - SignedDuration::from_millis(1);
    token.admits(ONE, None, last).unwrap();
    assert!(refused(token.admits(ONE, None, token.ends)).contains("was good until"));
    for seconds in [0, 8 * 24 * 3600] {
        let new = NewToken {
            seconds: Some(seconds),
            ..NewToken::default()
        };
        assert!(
            new.make(String::new(), "admin", &maker(), noon()).is_err(),
            "{seconds} s"
        );
    }
}

#[test]
fn a_token_is_open_while_it_enrols_somebody_and_what_is_told_of_it_opens_nothing() {
    let (mut token, text) = made(&[ONE, OTHER], None).unwrap();
    let open = |token: &AgentToken, at| token.clone().open(at);
    token.used.insert(ONE.to_owned());
    let told = open(&token, noon()).unwrap();
    assert_eq!(
        (told.uses_left, told.uuids.len(), told.by.as_str()),
        (1, 2, "admin")
    );
    let written = serde_json::to_string(&told).unwrap();
    let (name, secret) = parts(&text).unwrap();
    assert!(!written.contains(secret) && !written.contains(&token.digest));
    assert_eq!(
        (name_of_token(&text), name_of_token(name), name_of_token("x")),
        (name, name, "x")
    );
    assert_eq!(open(&token, token.ends), None, "it is over");
    token.used.insert(OTHER.to_owned());
    assert_eq!(open(&token, noon()), None, "it is used up");
}

#[test]
fn what_is_no_uuid_and_no_address_is_refused_in_words() {
    for wrong in ["", "x", "00000000-0000-0000-0000-000000000000", "Not Settable"] {
        let error = canonical(wrong).unwrap_err();
        assert!(error.hint.unwrap().contains("product_uuid"));
    }
    assert_eq!(canonical(&ONE.to_uppercase()).unwrap(), ONE);
    for right in ["10.0.0.1:8444", "host-1.example:1", "[fd00::1]:8444"] {
        check_address(right).unwrap();
    }
    let long = format!("{}:1", "a".repeat(255));
    for wrong in [
        "",
        "host",
        "host:0",
        "host:99999",
        "u@host:1",
        "host:1/x",
        "ho st:1",
        ":1",
        &long,
    ] {
        assert!(check_address(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn an_agent_is_renewed_ten_days_before_its_end_unless_it_is_revoked() {
    let agent = agent();
    let day = SignedDuration::from_hours(24);
    assert!(!agent.is_to_be_renewed(agent.ends - 11 * day));
    assert!(agent.is_to_be_renewed(agent.ends - 10 * day));
    assert!(!agent.is_to_be_renewed(agent.ends), "nobody believes it any more");
    let revoked = Agent {
        revoked: Some(noon()),
        ..agent.clone()
    };
    assert!(!revoked.is_to_be_renewed(agent.ends - day));
    assert_eq!(agent.names()[1], format!("agent-{ONE}"));
    assert!(agent.names()[0].starts_with(&agent.enrolment));
    assert_eq!(agent.endpoint().as_str(), "agent-host-1");
}
