use super::*;

fn judged(address: &str) -> Verdict {
    Allowed::default().judge(address.parse().unwrap())
}

#[test]
fn an_address_is_what_it_is_however_it_is_written() {
    for text in [
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://%31%32%37.0.0.1/",
        "https://①②⑦.⓪.⓪.①/",
        "https://127。0。0。1/",
        "https://127.0.0.1./",
    ] {
        let address = Destination::read(text).unwrap().address().unwrap();
        assert_eq!(
            Allowed::default().judge(address),
            Verdict::Never(LOOPBACK),
            "{text}"
        );
    }
}

#[test]
fn private_networks_are_open_where_they_are_listed_and_nothing_else_is_by_a_list() {
    let listed = |text: &str| Allowed {
        networks: vec![text.parse().unwrap()],
        loopback: false,
    };
    for (network, address, expected) in [
        ("10.0.0.0/8", "10.255.0.1", Verdict::Open),
        ("10.0.0.0/8", "::ffff:10.0.0.1", Verdict::Open),
        ("10.1.0.0/16", "10.2.0.1", Verdict::NotAllowed),
        ("192.168.1.50", "192.168.1.50", Verdict::Open),
        ("192.168.1.50", "192.168.1.51", Verdict::NotAllowed),
        ("fd12::/16", "fd12:1::1", Verdict::Open),
        ("fd12::/16", "fd13::1", Verdict::NotAllowed),
        ("0.0.0.0/0", "192.168.1.1", Verdict::Open),
        ("0.0.0.0/0", "fd00::1", Verdict::NotAllowed),
        ("0.0.0.0/0", "127.0.0.1", Verdict::Never(LOOPBACK)),
        (
            "0.0.0.0/0",
            "169.254.169.254",
            Verdict::Never("a link-local or metadata address (169.254.0.0/16)"),
        ),
        (
            "::/0",
            "fd00:ec2::254",
            Verdict::Never("a metadata address (fd00:ec2::/32)"),
        ),
    ] {
        assert_eq!(
            listed(network).judge(address.parse().unwrap()),
            expected,
            "{network} {address}"
        );
    }
    for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "host/8"] {
        assert!(wrong.parse::<Network>().is_err(), "{wrong}");
    }
}

#[test]
fn the_open_internet_is_open() {
    for address in [
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "64:ff9b::808:808",
    ] {
        assert_eq!(judged(address), Verdict::Open, "{address}");
    }
    for address in [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "fc00::1",
        "fd12::1",
    ] {
        assert_eq!(judged(address), Verdict::NotAllowed, "{address}");
    }
}

#[test]
fn what_is_no_destination_is_refused_with_the_reason() {
    for (text, expected) in [
        ("http://example.com/", Refused::NotHttps),
        ("ftp://example.com/", Refused::NotHttps),
        ("https://user@example.com/", Refused::User),
        ("https://example.com@127.0.0.1/", Refused::User),
        ("https://:secret@example.com/", Refused::User),
        ("https://example.com/#x", Refused::Fragment),
        ("https://example.com:0/", Refused::NoPort),
        (
            &format!("https://example.com/{}", "x".repeat(2_000)),
            Refused::TooLong,
        ),
    ] {
        assert_eq!(Destination::read(text).unwrap_err(), expected, "{text}");
    }
    for text in [
        "",
        "example.com",
        "https://",
        "https://[::1",
        "https://a b/",
        "https://example.com:99999/",
    ] {
        assert!(
            matches!(Destination::read(text), Err(Refused::NoUrl(_))),
            "{text}"
        );
    }
    let names = Allowed::default();
    assert!(names.judge_name("LOCALHOST.").is_err() && names.judge_name("a.localhost").is_err());
    assert!(names.judge_name("example.com").is_ok());
}

/// Fault 97: by address and by name.
#[test]
fn a_refusal_names_the_network_or_the_option_that_is_the_rule() {
    let allowed = Allowed::default();
    for (address, rule) in [
        ("127.0.0.1", "--insecure-event-loopback"),
        ("0.0.0.7", "(0.0.0.0/8)"),
        ("169.254.169.254", "(169.254.0.0/16)"),
        ("168.63.129.16", "(168.63.129.16)"),
        ("192.0.0.192", "(192.0.0.0/24)"),
        ("100.64.0.7", "(100.64.0.0/10)"),
        ("224.0.0.1", "(224.0.0.0/4)"),
        ("255.255.255.255", "(240.0.0.0/4)"),
        ("fd00:ec2::254", "(fd00:ec2::/32)"),
        ("64:ff9b::7f00:1", "(64:ff9b::/96)"),
        ("64:ff9b:1::1", "(64:ff9b::/32)"),
        ("::", "(::/96)"),
        ("2002::1", "(2002::/16)"),
        ("2001::1", "(2001::/32)"),
        ("fe80::1", "(fe80::/10)"),
        ("ff02::1", "(ff00::/8)"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let Verdict::Never(what) = allowed.judge(address) else {
            panic!("{address} is open");
        };
        let told = Refused::Never(address, what).to_string();
        assert!(told.contains(rule), "{told}");
    }
    let local = allowed.judge_name("localhost").unwrap_err().to_string();
    assert!(local.contains("--insecure-event-loopback"), "{local}");
}
