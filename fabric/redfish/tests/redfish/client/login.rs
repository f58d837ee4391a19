//! Sessions, Basic, and credentials that are refused.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{delete, get, post};
use poolwright_redfish::client::{Auth, Client, Effect, ErrorKind, Secret, WriteOptions};
use serde_json::{Value, json};

use crate::client::service::{Service, answer, error_body, json_body, quick, root};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const PASSWORD: &str = "canary-of-this-test";

/// A service with sessions: who is logged in, and how many ever were.
#[derive(Default)]
struct Sessions {
    open: Mutex<HashSet<String>>,
    opened: AtomicUsize,
    /// How many there may be at once, and how many there were; 0: as many as anybody wants.
    places: AtomicUsize,
    most: AtomicUsize,
    /// There is one at a time, and it ends with its first request.
    short: AtomicBool,
}

impl Sessions {
    fn lapse_all(&self) {
        self.open.lock().unwrap().clear();
    }
}

fn with_sessions(sessions: &Arc<Sessions>) -> Router {
    async fn open(State(sessions): State<Arc<Sessions>>, body: Bytes) -> Response {
        let login: Value = serde_json::from_slice(&body).unwrap();
        if login["UserName"] != "operator" || login["Password"] != PASSWORD {
            return error_body(401, "Base.1.18.ResourceAtUriUnauthorized", "wrong");
        }
        let (there, places) = (sessions.open.lock().unwrap().len(), &sessions.places);
        if (1..=there).contains(&places.load(Ordering::SeqCst)) {
            return error_body(503, "Base.1.18.SessionLimitExceeded", "all are taken");
        }
        sessions.most.fetch_max(there + 1, Ordering::SeqCst);
        if sessions.short.load(Ordering::SeqCst) {
            sessions.lapse_all();
        }
        let token = format!("t{}", sessions.opened.fetch_add(1, Ordering::SeqCst));
        sessions.open.lock().unwrap().insert(token.clone());
        let place = format!("{SESSIONS}/{token}");
        answer(
            201,
            &[("x-auth-token", &token), ("location", &place)],
            json!({ "@odata.id": place }).to_string(),
        )
    }
    async fn close(State(sessions): State<Arc<Sessions>>, Path(token): Path<String>) -> Response {
        let was_open = sessions.open.lock().unwrap().remove(&token);
        answer(if was_open { 204 } else { 404 }, &[], "")
    }
    async fn guarded(State(sessions): State<Arc<Sessions>>, headers: HeaderMap) -> Response {
        let token = headers
            .get("x-auth-token")
            .map(|token| token.to_str().unwrap().to_owned());
        let is_open = |token: String| {
            let mut open = sessions.open.lock().unwrap();
            match sessions.short.load(Ordering::SeqCst) {
                true => open.remove(&token),
                false => open.contains(&token),
            }
        };
        if token.is_some_and(is_open) {
            json_body(&json!({ "Id": "1" }))
        } else {
            answer(401, &[], "")
        }
    }
    let sessions_only = Router::new()
        .route(SESSIONS, post(open))
        .route("/redfish/v1/SessionService/Sessions/{token}", delete(close))
        .route("/redfish/v1/Systems/1", get(guarded).patch(guarded))
        .with_state(Arc::clone(sessions));
    root().merge(sessions_only)
}

fn auth() -> Auth {
    Auth::session("operator", Secret::new(PASSWORD))
}

/// Fault 38: one session, which is ended.
#[tokio::test]
async fn one_session_serves_all_requests_and_is_deleted() {
    let sessions = Arc::new(Sessions::default());
    let service = Service::http(with_sessions(&sessions));
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    let many = (0..20).map(|_| client.get("/redfish/v1/Systems/1"));
    for outcome in futures_util::future::join_all(many).await {
        outcome.unwrap();
    }
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 1);
    // The root is read without credentials, the rest with the token, nothing with Basic.
    assert!(
        service
            .recorder
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
    assert!(service.recorder.seen()[0].token.is_none());
    assert_eq!(client.requests(), 22);

    client.close().await.unwrap();
    assert!(sessions.open.lock().unwrap().is_empty());
    client.close().await.unwrap();
    assert_eq!(client.requests(), 23, "a second close sends nothing");
}

#[tokio::test]
async fn a_lapsed_session_is_opened_again_once() {
    let sessions = Arc::new(Sessions::default());
    let service = Service::http(with_sessions(&sessions));
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    sessions.lapse_all();
    let many = (0..8).map(|_| client.get("/redfish/v1/Systems/1"));
    for outcome in futures_util::future::join_all(many).await {
        outcome.unwrap();
    }
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 2);
    // A write that met the lapsed session was refused, so it goes out again.
    sessions.lapse_all();
    let nothing = json!({});
    client
        .patch("/redfish/v1/Systems/1", &nothing, WriteOptions::default())
        .await
        .unwrap();
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 3);
    client.close().await.unwrap();
    assert!(sessions.open.lock().unwrap().is_empty());
}

/// Fault 89: the session that one request opened is used up by another one before it comes to its turn.
#[tokio::test]
async fn sessions_that_end_after_one_request_are_opened_for_each() {
    let sessions = Arc::new(Sessions::default());
    sessions.short.store(true, Ordering::SeqCst);
    let service = Service::http(with_sessions(&sessions));
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    for _ in 0..5 {
        let many = (0..20).map(|_| client.get("/redfish/v1/Systems/1"));
        for outcome in futures_util::future::join_all(many).await {
            outcome.unwrap();
        }
    }
    assert!(client.shut_out().is_none());
    // Each request is refused at most twice, and opens one session at most.
    assert!(sessions.opened.load(Ordering::SeqCst) <= 101);
    assert!(service.recorder.count("GET", "/redfish/v1/Systems/1") <= 300);
    client.close().await.unwrap();
}

#[tokio::test]
async fn what_is_asked_in_one_session_ends_with_it() {
    let sessions = Arc::new(Sessions::default());
    let service = Service::http(with_sessions(&sessions));
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    let bound = client.in_this_session();
    let nothing = json!({});
    let write = || bound.patch("/redfish/v1/Systems/1", &nothing, WriteOptions::default());
    write().await.unwrap();
    // Who ended the session may have done it to stop a write: neither it nor a read before it opens another.
    sessions.lapse_all();
    for error in [
        write().await.unwrap_err(),
        bound.get("/redfish/v1/Systems/1").await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.effect()),
            (&ErrorKind::SessionEnded, Effect::None)
        );
    }
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 1);
    // Somebody looked again, in a session of their own: what was bound to the one that ended stays refused.
    client.get("/redfish/v1/Systems/1").await.unwrap();
    let late = write().await.unwrap_err();
    assert_eq!(late.kind(), &ErrorKind::SessionEnded);
    let anew = client.in_this_session();
    let write = anew.patch("/redfish/v1/Systems/1", &nothing, WriteOptions::default());
    write.await.unwrap();
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 2);
    client.close().await.unwrap();
    assert!(sessions.open.lock().unwrap().is_empty());
}

/// Fault 38: none is left behind.
#[tokio::test]
async fn a_session_refused_for_another_reason_is_not_leaked() {
    let sessions = Arc::new(Sessions::default());
    let odd = get(|| async { answer(401, &[], "") });
    let service = Service::http(with_sessions(&sessions).route("/redfish/v1/Odd", odd));
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    for _ in 0..2 {
        client.get("/redfish/v1/Odd").await.unwrap_err();
        client.get("/redfish/v1/Systems/1").await.unwrap();
    }
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 3);
    assert_eq!(sessions.open.lock().unwrap().len(), 1);
    client.close().await.unwrap();
    assert!(sessions.open.lock().unwrap().is_empty());
}

/// Fault 38: ten thousand requests of clients that come and go, of which sessions lapse and requests are refused, at a
/// table of four: none is ever left, and never are there more than two.
#[tokio::test]
async fn ten_thousand_requests_leave_a_table_of_four_empty() {
    let sessions = Arc::new(Sessions::default());
    sessions.places.store(4, Ordering::SeqCst);
    let odd = get(|| async { answer(401, &[], "") });
    let service = Service::http(with_sessions(&sessions).route("/redfish/v1/Odd", odd));
    for comes in 0..20 {
        let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
        for turn in 0..10 {
            let many = (0..50).map(|_| client.get("/redfish/v1/Systems/1"));
            for outcome in futures_util::future::join_all(many).await {
                outcome.unwrap();
            }
            match turn {
                3 => sessions.lapse_all(),
                7 => drop(client.get("/redfish/v1/Odd").await.unwrap_err()),
                _ => {}
            }
            assert_eq!(sessions.open.lock().unwrap().len(), usize::from(turn != 3));
        }
        client.close().await.unwrap();
        assert!(sessions.open.lock().unwrap().is_empty(), "after client {comes}");
        // The recorder is not what this is about.
        service.recorder.seen().clear();
    }
    assert!(sessions.most.load(Ordering::SeqCst) <= 2);
}

/// Fault 38: others have taken all places. It is told so, asked again only when somebody asks, and no worse after it.
#[tokio::test]
async fn a_full_table_is_told_and_nothing_is_left_in_it() {
    let sessions = Arc::new(Sessions::default());
    sessions.places.store(4, Ordering::SeqCst);
    let others = ["a", "b", "c", "d"].map(str::to_owned);
    sessions.open.lock().unwrap().extend(others.clone());
    let service = Service::http(with_sessions(&sessions));
    for _ in 0..3 {
        let error = Client::connect(service.endpoint().auth(auth()))
            .await
            .unwrap_err();
        assert_eq!(
            (error.status(), error.effect()),
            (Some(503), Effect::None),
            "{error}"
        );
        assert!(error.message().unwrap().is("SessionLimitExceeded"), "{error}");
    }
    assert_eq!(service.recorder.count("POST", SESSIONS), 3);
    assert_eq!(
        *sessions.open.lock().unwrap(),
        HashSet::from(others),
        "those of others stay"
    );
    // One of them is done. That the table was full says nothing of the password.
    sessions.open.lock().unwrap().remove("a");
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    client.get("/redfish/v1/Systems/1").await.unwrap();
    client.close().await.unwrap();
    assert_eq!(sessions.open.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn no_session_service_means_basic() {
    let guarded = get(|headers: HeaderMap| async move {
        match headers.contains_key("authorization") {
            true => json_body(&json!({ "Id": "1" })),
            false => answer(401, &[], ""),
        }
    });
    for missing in [404, 405, 501] {
        let service = Service::http(
            root()
                .route(SESSIONS, post(move || async move { answer(missing, &[], "") }))
                .route("/redfish/v1/Systems/1", guarded.clone()),
        );
        let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
        client.get("/redfish/v1/Systems/1").await.unwrap();
        client.get("/redfish/v1/Systems/1").await.unwrap();
        assert_eq!(service.recorder.count("POST", SESSIONS), 1, "{missing}");
        client.close().await.unwrap();
        assert_eq!(service.recorder.count("DELETE", SESSIONS), 0);
    }
}

/// As OpenStack's sushy-emulator does: sessions are not advertised, not there, and guarded all the same.
#[tokio::test]
async fn a_refusal_where_no_sessions_are_advertised_means_basic() {
    let root =
        get(|| async { json_body(&json!({ "RedfishVersion": "1.5.0", "@odata.id": "/redfish/v1/" })) });
    let guarded = get(|headers: HeaderMap| async move {
        match headers.get("authorization").map(|value| value.to_str().unwrap()) {
            Some("Basic b3BlcmF0b3I6Y2FuYXJ5LW9mLXRoaXMtdGVzdA==") => json_body(&json!({ "Id": "1" })),
            _ => answer(401, &[], ""),
        }
    });
    let router = Router::new()
        .route("/redfish/v1/", root)
        .route(SESSIONS, post(|| async { answer(401, &[], "") }))
        .route("/redfish/v1/Systems/1", guarded);
    let service = Service::http(router);
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    client.get("/redfish/v1/Systems/1").await.unwrap();
    assert_eq!(service.recorder.count("POST", SESSIONS), 1);

    let wrong = Auth::session("operator", Secret::new("no"));
    let client = Client::connect(service.endpoint().auth(wrong)).await.unwrap();
    // Open to everybody: it answers, and that is no proof of the password.
    client.get("/redfish/v1/").await.unwrap();
    let before = service.recorder.seen().len();
    let many = (0..8).map(|_| client.get("/redfish/v1/Systems/1"));
    for outcome in futures_util::future::join_all(many).await {
        let error = outcome.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::CredentialsRefused { .. }),
            "{error}"
        );
    }
    // The login was the first of three tries: the account may lock on either kind.
    assert_eq!(service.recorder.seen().len() - before, 2);
}

#[tokio::test]
async fn a_guarded_root_gets_credentials_on_the_second_try() {
    let document = json!({ "RedfishVersion": "1.6.0", "@odata.id": "/redfish/v1/" });
    let root = get(move |headers: HeaderMap| async move {
        match headers.get("authorization").map(|value| value.to_str().unwrap()) {
            Some("Basic b3BlcmF0b3I6Y2FuYXJ5LW9mLXRoaXMtdGVzdA==") => json_body(&document),
            _ => answer(401, &[], ""),
        }
    });
    let service = Service::http(Router::new().route("/redfish/v1/", root));
    let basic = |password: &str| Auth::basic("operator", Secret::new(password));
    Client::connect(service.endpoint().auth(basic(PASSWORD)))
        .await
        .unwrap();
    let error = Client::connect(service.endpoint().auth(basic("no")))
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::CredentialsRefused { refusals: 1, .. }),
        "{error}"
    );
    let error = Client::connect(service.endpoint()).await.unwrap_err();
    assert!(
        error.status() == Some(401) && error.hint().contains("credentials"),
        "{error}"
    );
}

#[tokio::test]
async fn a_wrong_password_shows_at_once_and_nowhere_is_it_printed() {
    let sessions = Arc::new(Sessions::default());
    let service = Service::http(with_sessions(&sessions));
    let wrong = service
        .endpoint()
        .auth(Auth::session("operator", Secret::new("canary-too")));
    let shown = format!("{wrong:?}");
    let error = Client::connect(wrong).await.unwrap_err();
    assert!(matches!(
        error.kind(),
        ErrorKind::CredentialsRefused {
            answer: Some(_),
            refusals: 1,
            limit: 3
        }
    ));
    assert_eq!(
        error.message().unwrap().id.as_deref(),
        Some("Base.1.18.ResourceAtUriUnauthorized")
    );
    for text in [shown, format!("{error} {error:?} {}", error.hint())] {
        assert!(!text.contains("canary"), "{text}");
    }
}

/// Fault 37: three, however many ask.
#[tokio::test]
async fn nothing_is_sent_after_three_refusals_however_many_wait() {
    let refuse = get(|| async { answer(401, &[], "") });
    let service = Service::http(root().route("/redfish/v1/Systems/1", refuse));
    let auth = Auth::basic("operator", Secret::new(PASSWORD));
    let limits = poolwright_redfish::client::Limits {
        concurrency: 32,
        ..quick()
    };
    let client = Client::connect(service.endpoint().auth(auth).limits(limits))
        .await
        .unwrap();
    let many = (0..64).map(|_| client.get("/redfish/v1/Systems/1"));
    let outcomes = futures_util::future::join_all(many).await;
    assert_eq!(service.recorder.count("GET", "/redfish/v1/Systems/1"), 3);
    let sent = |answered: bool| {
        let is = |error: &poolwright_redfish::client::Error| matches!(error.kind(), ErrorKind::CredentialsRefused { answer, .. } if answer.is_some() == answered);
        outcomes
            .iter()
            .filter(|outcome| outcome.as_ref().is_err_and(is))
            .count()
    };
    assert_eq!((sent(true), sent(false)), (3, 61));

    // Writes are stopped too, and certainly had no effect.
    let error = client
        .delete("/redfish/v1/Systems/1", WriteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(service.recorder.seen().len(), 4);
    client.reset_refusals();
    client.get("/redfish/v1/Systems/1").await.unwrap_err();
    assert_eq!(service.recorder.seen().len(), 5);
}

/// Fault 37: also over new connections.
#[tokio::test]
async fn a_client_that_comes_later_goes_on_counting() {
    let sessions = Arc::new(Sessions::default());
    let service = Service::http(with_sessions(&sessions));
    let wrong = service
        .endpoint()
        .auth(Auth::session("operator", Secret::new("no")));
    let tries = || service.recorder.count("POST", SESSIONS);
    for _ in 0..6 {
        Client::connect(wrong.clone()).await.unwrap_err();
    }
    assert_eq!(tries(), 3);
    let sent = service.recorder.seen().len();
    let error = Client::connect(wrong.clone()).await.unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::CredentialsRefused {
                answer: None,
                refusals: 3,
                limit: 3
            }
        ),
        "{error}"
    );
    assert_eq!(service.recorder.seen().len(), sent, "not even the root is asked");
    // Somebody asks: once.
    wrong.refusals.allow_one_more();
    for _ in 0..3 {
        Client::connect(wrong.clone()).await.unwrap_err();
    }
    assert_eq!(tries(), 4);
    // A password that is accepted starts the count again, for all that share it.
    let right = wrong.clone().auth(auth());
    right.refusals.allow_one_more();
    Client::connect(right.clone())
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    assert_eq!(wrong.refusals.in_a_row(), 0);
}

/// Where a service says nothing of sessions, a refused one is a try of its own.
#[tokio::test]
async fn basic_after_a_refused_session_is_a_try_as_well() {
    let refuse = || async { answer(401, &[], "") };
    let document = || async { json_body(&json!({"@odata.id": "/redfish/v1/", "RedfishVersion": "1.0.0"})) };
    let service = Service::http(
        Router::new()
            .route("/redfish/v1/", get(document))
            .route(SESSIONS, post(refuse))
            .route("/redfish/v1/Systems/1", get(refuse)),
    );
    let wrong = service
        .endpoint()
        .auth(Auth::session("operator", Secret::new("no")));
    for _ in 0..4 {
        let Ok(client) = Client::connect(wrong.clone()).await else {
            continue;
        };
        client.get("/redfish/v1/Systems/1").await.unwrap_err();
    }
    let seen = service.recorder.seen();
    let tries = seen
        .iter()
        .filter(|seen| seen.authorization.is_some() || seen.method == "POST");
    assert_eq!(tries.count(), 3);
}

#[tokio::test]
async fn a_success_in_between_starts_the_count_again() {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let every_third = get(move || async move {
        match counter.fetch_add(1, Ordering::SeqCst) % 3 {
            2 => json_body(&json!({})),
            _ => answer(403, &[], ""),
        }
    });
    let service = Service::http(root().route("/redfish/v1/Systems/1", every_third));
    let auth = Auth::basic("operator", Secret::new(PASSWORD));
    let client = Client::connect(service.endpoint().auth(auth)).await.unwrap();
    for _ in 0..9 {
        let _ = client.get("/redfish/v1/Systems/1").await;
    }
    assert_eq!(served.load(Ordering::SeqCst), 9);
}

#[tokio::test]
async fn a_missing_privilege_is_no_refusal_of_the_credentials() {
    let forbid = get(|| async { error_body(403, "Base.1.18.InsufficientPrivilege", "not for you") });
    let service = Service::http(root().route("/redfish/v1/AccountService", forbid));
    let auth = Auth::basic("operator", Secret::new(PASSWORD));
    let client = Client::connect(service.endpoint().auth(auth)).await.unwrap();
    for _ in 0..5 {
        let error = client.get("/redfish/v1/AccountService").await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Refused(refusal) if refusal.status == 403),
            "{error}"
        );
    }
    assert_eq!(service.recorder.count("GET", "/redfish/v1/AccountService"), 5);
}

#[tokio::test]
async fn a_session_named_by_another_address_is_deleted_by_its_path() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&deleted);
    let service = Service::http(
        root()
            .route(
                SESSIONS,
                post(|| async {
                    let headers = [
                        ("x-auth-token", "t"),
                        (
                            "location",
                            "https://inside.example/redfish/v1/SessionService/Sessions/1",
                        ),
                    ];
                    answer(
                        201,
                        &headers,
                        json!({ "@odata.id": format!("{SESSIONS}/1") }).to_string(),
                    )
                }),
            )
            .route(
                "/redfish/v1/SessionService/Sessions/1",
                delete(move || async move {
                    counter.fetch_add(1, Ordering::SeqCst);
                    answer(204, &[], "")
                }),
            ),
    );
    let client = Client::connect(service.endpoint().auth(auth())).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
}
