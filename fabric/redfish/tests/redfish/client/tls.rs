//! Whom the client believes.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use poolwright_redfish::client::{
    Auth, Client, Effect, Endpoint, Error, ErrorKind, Fingerprint, Limits, NotSent, Secret, Tls, TlsFault,
    Transport, WriteOptions,
};

use crate::client::service::{Authority, Service, answer, quick, raw, root};

fn tls_fault(error: &Error) -> &TlsFault {
    match error.kind() {
        ErrorKind::Tls(fault) => fault,
        other => panic!("no TLS fault: {other:?}"),
    }
}

async fn connect(service: &Service, tls: Tls) -> Result<Client, Error> {
    Client::connect(service.endpoint().tls(tls)).await
}

async fn refusal(service: &Service, tls: Tls) -> Error {
    let error = connect(service, tls).await.unwrap_err();
    assert_eq!(service.recorder.seen().len(), 0, "something was sent: {error}");
    assert!(!error.hint().is_empty());
    error
}

/// Fault 34: an unknown authority.
#[tokio::test]
async fn a_private_ca_is_believed_and_another_is_not() {
    let ours = Authority::new();
    let service = Service::https(root(), &ours.issue(&["127.0.0.1"], |_| {}));
    connect(&service, Tls::Ca(ours.pem())).await.unwrap();

    // Another CA, be it one that calls itself the same.
    for other in [Authority::new(), Authority::named("another CA")] {
        let service = Service::https(root(), &ours.issue(&["127.0.0.1"], |_| {}));
        let wrong = refusal(&service, Tls::Ca(other.pem())).await;
        assert_eq!(tls_fault(&wrong), &TlsFault::UnknownIssuer);
        assert!(wrong.to_string().contains(&service.url), "{wrong}");
        assert!(wrong.hint().contains("--ca"));
    }
}

#[tokio::test]
async fn the_systems_cas_do_not_know_a_private_one() {
    let service = Service::https(root(), &Authority::new().issue(&["127.0.0.1"], |_| {}));
    // A machine without CA certificates can't begin; it says so instead.
    match tls_fault(&refusal(&service, Tls::SystemRoots).await) {
        TlsFault::UnknownIssuer => {}
        TlsFault::NoSystemRoots(why) => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
}

/// Fault 34: another name, too old, too early.
#[tokio::test]
async fn wrong_name_and_wrong_time_are_told_apart() {
    let ca = Authority::new();
    let elsewhere = Service::https(root(), &ca.issue(&["bmc-17.example"], |_| {}));
    match tls_fault(&refusal(&elsewhere, Tls::Ca(ca.pem())).await) {
        TlsFault::WrongName { presented } => {
            assert!(presented[0].contains("bmc-17.example"), "{presented:?}")
        }
        other => panic!("{other:?}"),
    }
    let expired = ca.issue(&["127.0.0.1"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let service = Service::https(root(), &expired);
    assert_eq!(
        tls_fault(&refusal(&service, Tls::Ca(ca.pem())).await),
        &TlsFault::Expired
    );
    let early = ca.issue(&["127.0.0.1"], |params| {
        params.not_before = rcgen::date_time_ymd(4000, 1, 1)
    });
    let service = Service::https(root(), &early);
    assert_eq!(
        tls_fault(&refusal(&service, Tls::Ca(ca.pem())).await),
        &TlsFault::NotYetValid
    );
}

/// Fault 34: unless it is pinned.
/// Fault 36: another certificate is refused.
#[tokio::test]
async fn a_pin_holds_for_one_certificate_only() {
    let ca = Authority::new();
    // Pinned, it may have the wrong name and be too old: it is that very certificate.
    let old = ca.issue(&["elsewhere"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let pin = Fingerprint::of(&old.der);
    let service = Service::https(root(), &old);
    connect(&service, Tls::Pinned(pin)).await.unwrap();

    let fresh = ca.issue(&["127.0.0.1"], |_| {});
    let found = Fingerprint::of(&fresh.der);
    let service = Service::https(root(), &fresh);
    let error = refusal(&service, Tls::Pinned(pin)).await;
    assert_eq!(tls_fault(&error), &TlsFault::PinMismatch { expected: pin, found });
    assert!(error.to_string().contains(&found.to_string()), "{error}");
}

/// Fault 36: while somebody speaks to it; nothing is sent, and it goes on once the new one is pinned.
#[tokio::test]
async fn a_certificate_that_changes_under_a_client_is_refused_until_it_is_pinned() {
    const PLACE: &str = "/redfish/v1/Systems/1";
    let ca = Authority::new();
    let (old, fresh) = (ca.issue(&["127.0.0.1"], |_| {}), ca.issue(&["127.0.0.1"], |_| {}));
    let (pin, found) = (Fingerprint::of(&old.der), Fingerprint::of(&fresh.der));
    // Each request has a connection of its own, as after a restart.
    let place = || async { answer(200, &[("connection", "close")], "{}") };
    let service = Service::https_1(root().route(PLACE, get(place).patch(place)), &old);
    let auth = Auth::basic("operator", Secret::new("a secret of this test"));
    let endpoint = service.endpoint().auth(auth).tls(Tls::Pinned(pin));
    let client = Client::connect(endpoint.clone()).await.unwrap();
    client.get(PLACE).await.unwrap();

    service.change_certificate(&fresh);
    let seen = service.recorder.seen().len();
    for _ in 0..3 {
        let (nothing, how) = (serde_json::json!({}), WriteOptions::default());
        for error in [
            client.get(PLACE).await.unwrap_err(),
            client.patch(PLACE, &nothing, how).await.unwrap_err(),
            Client::connect(endpoint.clone()).await.unwrap_err(),
        ] {
            assert_eq!(tls_fault(&error), &TlsFault::PinMismatch { expected: pin, found });
            assert_eq!(error.effect(), Effect::None, "{error}");
            for fingerprint in [pin, found] {
                assert!(error.to_string().contains(&fingerprint.to_string()), "{error}");
            }
        }
    }
    assert_eq!(
        service.recorder.seen().len(),
        seen,
        "nothing was sent, and no password"
    );

    let pinned = Client::connect(endpoint.tls(Tls::Pinned(found))).await.unwrap();
    pinned.get(PLACE).await.unwrap();
}

/// Fault 36: the next certificate was pinned in advance, so the change is not noticed; a third one is.
#[tokio::test]
async fn a_certificate_that_was_pinned_in_advance_may_come() {
    let ca = Authority::new();
    let [old, fresh, other] = [(); 3].map(|()| ca.issue(&["127.0.0.1"], |_| {}));
    let [pin, next, third] = [&old, &fresh, &other].map(|one| Fingerprint::of(&one.der));
    let service = Service::https_1(root(), &old);
    let endpoint = service.endpoint().tls(Tls::PinnedEither(pin, next));
    Client::connect(endpoint.clone()).await.unwrap();
    service.change_certificate(&fresh);
    Client::connect(endpoint.clone()).await.unwrap();
    service.change_certificate(&other);
    let error = Client::connect(endpoint).await.unwrap_err();
    let expected = TlsFault::PinMismatch {
        expected: pin,
        found: third,
    };
    assert_eq!(tls_fault(&error), &expected);
}

/// A certificate that is renewed under a trusted authority is no event: the same client goes on, and tells nothing.
#[tokio::test]
async fn a_certificate_that_is_renewed_under_a_trusted_authority_is_no_event() {
    const PLACE: &str = "/redfish/v1/Systems/1";
    let ca = Authority::new();
    let (old, fresh) = (ca.issue(&["127.0.0.1"], |_| {}), ca.issue(&["127.0.0.1"], |_| {}));
    let place = || async { answer(200, &[("connection", "close")], "{}") };
    let service = Service::https_1(root().route(PLACE, get(place)), &old);
    let endpoint = service.endpoint().tls(Tls::Ca(ca.pem()));
    let client = Client::connect(endpoint).await.unwrap();
    client.get(PLACE).await.unwrap();
    service.change_certificate(&fresh);
    client.get(PLACE).await.unwrap();
}

#[tokio::test]
async fn insecure_believes_anybody() {
    let ca = Authority::new();
    let old = ca.issue(&["elsewhere"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let service = Service::https(root(), &old);
    connect(&service, Tls::Insecure).await.unwrap();
}

#[tokio::test]
async fn a_port_without_tls_says_so() {
    let service = Service::http(root());
    let endpoint = Endpoint::new(&service.url.replace("http:", "https:"))
        .unwrap()
        .limits(quick());
    let error = Client::connect(endpoint.tls(Tls::Insecure)).await.unwrap_err();
    assert_eq!(tls_fault(&error), &TlsFault::NotTls, "{error}");
}

/// The first answer of a server that speaks this version of TLS and nothing newer.
fn server_hello(minor: u8) -> Vec<u8> {
    // Version, random, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression.
    let mut hello = vec![3, minor];
    hello.extend([7; 32]);
    hello.extend([0, 0x00, 0x2f, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let handshake = [&[2, 0, 0, length], &hello[..]].concat();
    [&[22, 3, minor, 0, length + 4], &handshake[..]].concat()
}

/// Fault 35: TLS 1.0 and 1.1 are not spoken.
#[tokio::test]
async fn what_speaks_only_old_tls_is_refused() {
    for minor in [1, 2] {
        let (url, connections) = raw(server_hello(minor)).await;
        let endpoint = Endpoint::new(&url.replace("http:", "https:")).unwrap();
        let error = Client::connect(endpoint.limits(quick()).tls(Tls::Insecure))
            .await
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Tls(_)),
            "TLS 1.{}: {error:?}",
            minor - 1
        );
        assert_eq!(error.effect(), Effect::None);
        assert_eq!(
            connections.load(std::sync::atomic::Ordering::SeqCst),
            1,
            "asked once"
        );
    }
}

/// Fault 35: who takes the connection and never says a word is given up at the deadline for that.
#[tokio::test]
async fn a_handshake_that_stalls_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let limits = Limits {
        connect: Duration::from_millis(200),
        // So it is not this one that ends it.
        request: Duration::from_secs(3600),
        ..quick()
    };
    // Nobody accepts: the system takes the connection, and no more comes.
    let error = Client::connect(endpoint.limits(limits).tls(Tls::Insecure))
        .await
        .unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    assert!(
        matches!(
            error.kind(),
            ErrorKind::NotSent(_) | ErrorKind::DeadlineExceeded { .. }
        ),
        "{error:?}"
    );
    drop(listener);
}

#[tokio::test]
async fn a_useless_ca_file_fails_before_anything_is_sent() {
    let service = Service::https(root(), &Authority::new().issue(&["127.0.0.1"], |_| {}));
    let error = refusal(&service, Tls::Ca(b"-----BEGIN NOTHING-----".to_vec())).await;
    assert!(matches!(tls_fault(&error), TlsFault::BadCa(_)), "{error}");
}

#[tokio::test]
async fn a_transport_serves_many_endpoints_of_one_kind() {
    let ca = Authority::new();
    let tls = Tls::Ca(ca.pem());
    let shared = Transport::new(&tls, quick().connect).unwrap();
    let services: Vec<Service> = (0..3)
        .map(|_| Service::https(root(), &ca.issue(&["127.0.0.1"], |_| {})))
        .collect();
    for service in &services {
        let endpoint = service.endpoint().tls(tls.clone());
        let client = Client::connect_over(endpoint, shared.clone()).await.unwrap();
        assert_eq!(client.requests(), 1);
    }
    let other = services[0].endpoint().tls(Tls::Insecure);
    let error = Client::connect_over(other, shared).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotSent(NotSent::OtherTransport));
    // Plain http needs no CA certificates on the machine, and its transport serves nothing else.
    let plain = Service::http(root());
    let transport = Transport::for_endpoint(&plain.endpoint()).unwrap();
    Client::connect_over(plain.endpoint(), transport.clone())
        .await
        .unwrap();
    assert!(
        Client::connect_over(services[0].endpoint(), transport)
            .await
            .is_err()
    );
}

/// Fault 67: a name that nobody knows.
#[tokio::test]
async fn nobody_there_is_told_from_nobody_known() {
    let gone = Service::http(Router::new());
    let url = gone.url.clone();
    drop(gone);
    // The port is free again once the listener is gone; the service stops in its own time.
    let refused = loop {
        match Client::connect(Endpoint::new(&url).unwrap().limits(quick()))
            .await
            .unwrap_err()
        {
            error if error.kind() == &ErrorKind::NotSent(NotSent::ConnectionRefused) => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(refused.hint().contains("port"));
    let unknown = Endpoint::new("https://no-such-host.invalid")
        .unwrap()
        .tls(Tls::Insecure)
        .limits(quick());
    let error = Client::connect(unknown).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotSent(NotSent::UnknownHost(_))),
        "{error}"
    );
}
