//! The client of the manager's JSON API (`/api/v1`).
//!
//! Every request carries name and password, over TLS; plain http is for loopback only. A manager that lives is waited
//! for; one that hangs is found out ([`watch`]). Of a write whose answer is lost nobody knows whether it was done: a
//! manager alone is not asked again, and its failure says so.
//!
//! Where several managers are named, whoever answered last is asked first, and the next where one can't be reached, hangs,
//! or can't serve just now. What a lost write has done is in the store that they share: changes of the hardware carry a
//! key, so that they are done once; of all others a second one does nothing that the first has not done, or is refused.

use crate::access::read_password;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::say;
use crate::service_failure::refused;
use crate::wire_up;
use poolwright_service::{ErrorCode, ServiceError};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error as _;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use url::Url;

mod watch;

/// Where the manager is, and who asks.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Manager")]
pub struct ManagerArgs {
    /// The manager's address; several, separated by commas, where managers share a store
    #[arg(
        long,
        value_name = "URL",
        env = "POOLWRIGHT_SERVER",
        value_delimiter = ',',
        default_value = "https://127.0.0.1:8443"
    )]
    pub server: Vec<String>,
    /// Its certificate authority: DATA_DIR/tls/ca.pem of poolwright serve
    #[arg(long, value_name = "FILE", env = "POOLWRIGHT_CA")]
    pub ca: Option<PathBuf>,
    /// Account at the manager
    #[arg(
        long,
        value_name = "NAME",
        env = "POOLWRIGHT_USERNAME",
        default_value = "admin"
    )]
    pub username: String,
    /// File with its password; the first one is DATA_DIR/initial-admin-password
    #[arg(long, value_name = "FILE", env = "POOLWRIGHT_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
}

/// Connections with TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// A manager that lives is waited for this long: a look at a large pool is the longest answer.
const ANSWER: Duration = Duration::from_secs(330);
/// Nothing that the manager says is larger.
const LARGEST_ANSWER: usize = 256 << 20;

/// A manager that can be asked.
pub struct Api {
    http: reqwest::Client,
    /// Never empty.
    managers: Vec<Manager>,
    /// Which of them answered last.
    last: AtomicUsize,
    username: String,
    password: String,
}

/// Where one manager is.
struct Manager(Url);

/// What is asked for: below `/api/v1`, narrowed down by a query.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a [&'a str],
    query: &'a [(&'a str, &'a str)],
}

/// Why there is no answer to go by.
enum Unanswered {
    /// Nothing was done there; or it was only asked, and may be asked elsewhere.
    Nothing(Failure),
    /// It was sent, and may have been done, or be done yet.
    Lost(Failure),
    /// It says so itself.
    Refused(Failure),
}

/// An error as the API writes it.
#[derive(Deserialize)]
struct Problem {
    error: Details,
}

#[derive(Deserialize)]
struct Details {
    code: String,
    message: String,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    details: Vec<String>,
}

impl Api {
    /// Gets everything ready; nothing is sent yet.
    pub fn new(args: &ManagerArgs) -> Result<Self, Failure> {
        let managers = args
            .server
            .iter()
            .map(|server| wire_up::manager_address(server.trim()).map(Manager));
        let managers = managers.collect::<Result<Vec<Manager>, Failure>>()?;
        let file = args.password_file.as_deref().ok_or_else(|| {
            Failure::usage(format!(
                "no password for {} at {}",
                args.username,
                args.server.join(", ")
            ))
            .with_hint(
                "give --password-file FILE or set POOLWRIGHT_PASSWORD_FILE; \
                 the first password is DATA_DIR/initial-admin-password of poolwright serve",
            )
        })?;
        let password = read_password(file)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        if let Some(ca) = &args.ca {
            let pem = fs::read(ca).map_err(|error| Failure::file(ca, "read", &error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|found| !found.is_empty());
            let certificates = certificates.ok_or_else(|| {
                Failure::usage(format!("{} holds no certificate in PEM form", ca.display()))
                    .with_hint("give DATA_DIR/tls/ca.pem of poolwright serve")
            })?;
            builder = builder.tls_certs_only(certificates);
        }
        let http = builder.build().map_err(|error| {
            Failure::new(
                ExitCode::Generic,
                format!("no client can be made: {}", causes(&error)),
            )
            .with_hint("give the manager's certificate authority: --ca DATA_DIR/tls/ca.pem")
        })?;
        Ok(Self {
            http,
            managers,
            last: AtomicUsize::new(0),
            username: args.username.clone(),
            password,
        })
    }

    /// What is at this path under `/api/v1`.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Failure> {
        self.get_where(path, &[]).await
    }

    /// The same, narrowed down.
    pub async fn get_where<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::GET, Place { path, query }, None::<&()>).await
    }

    /// Asks for something to be done.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.post_where(path, &[], body).await
    }

    /// The same, with more said in the address.
    pub async fn post_where<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.send(Method::POST, Place { path, query }, Some(body)).await
    }

    pub async fn delete(&self, path: &[&str]) -> Result<(), Failure> {
        let place = Place { path, query: &[] };
        let (_, asked) = self.request(&Method::DELETE, place, None::<&()>).await;
        asked.map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        place: Place<'_>,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        let (manager, asked) = self.request(&method, place, body).await;
        let text = asked?;
        serde_json::from_slice(&text).map_err(|error| match text.trim_ascii_start().first() {
            Some(b'<') => manager.is_none(&strange(StatusCode::OK, &text)),
            _ => manager.is_none(&format!("what it says is not understood: {error}")),
        })
    }

    /// Asks whoever answered last, and then each of the others once, until one can tell; and who that was.
    async fn request(
        &self,
        method: &Method,
        place: Place<'_>,
        body: Option<&impl Serialize>,
    ) -> (&Manager, Result<Vec<u8>, Failure>) {
        let (first, all) = (self.last.load(Ordering::Relaxed), self.managers.len());
        let mut lost: Option<(&Manager, Failure)> = None;
        let mut turn = 0;
        loop {
            let at = (first + turn) % all;
            let manager = &self.managers[at];
            let asked = self.ask(manager, method, place, body).await;
            turn += 1;
            let asked = match (asked, lost) {
                (Ok(answer), _) => Ok(answer),
                (Err(Unanswered::Lost(failure)), before) if turn < all => {
                    say(&format!(
                        "warning: {}; another manager is asked the same",
                        failure.message
                    ));
                    lost = before.or(Some((manager, failure)));
                    continue;
                }
                (Err(Unanswered::Nothing(failure) | Unanswered::Refused(failure)), before)
                    if failure.may_pass && turn < all =>
                {
                    lost = before;
                    continue;
                }
                // What was lost is what matters.
                (Err(Unanswered::Nothing(_) | Unanswered::Lost(_)), Some((_, failure))) => Err(failure),
                (Err(Unanswered::Refused(failure)), Some((before, _))) => Err(after_a_loss(failure, before)),
                (
                    Err(
                        Unanswered::Nothing(failure)
                        | Unanswered::Lost(failure)
                        | Unanswered::Refused(failure),
                    ),
                    None,
                ) => Err(failure),
            };
            self.last.store(at, Ordering::Relaxed);
            return (manager, asked);
        }
    }

    /// Asks one manager, for as long as it lives.
    async fn ask(
        &self,
        manager: &Manager,
        method: &Method,
        place: Place<'_>,
        body: Option<&impl Serialize>,
    ) -> Result<Vec<u8>, Unanswered> {
        let what = format!("{method} {}", manager.url(place).path());
        tokio::select! {
            biased;
            answer = self.exchange(manager, method, place, body) => answer,
            silence = watch::hangs(&self.http, manager, &what, self.managers.len() > 1) => {
                Err(manager.silent(&silence, method == Method::GET))
            }
        }
    }

    async fn exchange(
        &self,
        manager: &Manager,
        method: &Method,
        place: Place<'_>,
        body: Option<&impl Serialize>,
    ) -> Result<Vec<u8>, Unanswered> {
        let safe = method == Method::GET;
        let mut request = self
            .http
            .request(method.clone(), manager.url(place))
            .basic_auth(&self.username, Some(&self.password));
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = request
            .send()
            .await
            .map_err(|error| manager.unreached(&error, safe))?;
        let status = answer.status();
        if let Some(why) = answer.headers().get("poolwright-stale") {
            let why = why.to_str().unwrap_or("its store does not answer");
            say(&format!("warning: what the manager tells may be old: {why}"));
        }
        let mut text = Vec::new();
        while let Some(chunk) = answer
            .chunk()
            .await
            .map_err(|error| manager.unreached(&error, safe))?
        {
            text.extend_from_slice(&chunk);
            if text.len() > LARGEST_ANSWER {
                let why = format!("its answer is larger than {} MiB", LARGEST_ANSWER >> 20);
                return Err(Unanswered::Refused(manager.is_none(&why)));
            }
        }
        match status.is_success() {
            true => Ok(text),
            false => Err(Unanswered::Refused(manager.refused(
                &self.username,
                status,
                &text,
            ))),
        }
    }
}

impl Manager {
    fn url(&self, Place { path, query }: Place<'_>) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Where it says that it lives.
    fn livez(&self) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("livez");
        }
        url
    }

    fn refused(&self, username: &str, status: StatusCode, text: &[u8]) -> Failure {
        let Ok(Problem { error }) = serde_json::from_slice::<Problem>(text) else {
            return self.is_none(&strange(status, text));
        };
        let known = serde_json::from_value::<ErrorCode>(error.code.clone().into()).ok();
        if known.is_none() {
            let code = match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ExitCode::Authentication,
                _ => ExitCode::Generic,
            };
            let message = format!("{} refuses {username}: {}", self.base(), error.message);
            let hint =
                "check --username and --password-file; the first password is DATA_DIR/initial-admin-password";
            return Failure::new(code, message).with_hint(error.hint.unwrap_or_else(|| hint.to_owned()));
        }
        let mut failure = refused(ServiceError {
            hint: error.hint,
            details: error.details,
            ..ServiceError::new(known.unwrap_or(ErrorCode::Internal), error.message)
        });
        failure.may_pass = known == Some(ErrorCode::Unavailable);
        if let Some(operation) = error.operation {
            if !failure.message.contains(&operation) {
                failure.message = format!("{} (operation {operation})", failure.message);
            }
            let look = || format!("see what became of it: poolwright ops show {operation}");
            failure.hint.get_or_insert_with(look);
        }
        failure
    }

    /// It is no manager, or none that we understand.
    fn is_none(&self, why: &str) -> Failure {
        Failure::new(
            ExitCode::Unavailable,
            format!(
                "{} is not a Poolwright manager of this version: {why}",
                self.base()
            ),
        )
        .with_hint("check --server; poolwright serve prints its address when it is ready")
    }

    /// The request did not get through, or its answer did not.
    fn unreached(&self, error: &reqwest::Error, safe: bool) -> Unanswered {
        let base = self.base();
        if let Some(failure) = wire_up::unreached(base, error) {
            return Unanswered::Nothing(failure);
        }
        let why = causes(error);
        // A TLS server ignores plain http requests.
        if base.starts_with("http:") && why.contains("invalid HTTP version") {
            let failure = self.is_none("it does not speak plain http");
            return Unanswered::Nothing(failure.with_hint("a manager speaks https: check --server"));
        }
        if !safe {
            return self.lost(&why);
        }
        let failure = Failure::new(
            ExitCode::Unavailable,
            format!("the answer of the manager at {base} was lost: {why}"),
        );
        Unanswered::Nothing(match base.starts_with("http:") {
            true => failure.with_hint("a manager speaks https: check --server"),
            false => failure
                .with_hint("it may be restarting: look at its log, and try again")
                .that_may_pass(),
        })
    }

    /// It hangs, or is gone without a word.
    fn silent(&self, why: &str, safe: bool) -> Unanswered {
        if !safe {
            return self.lost(why);
        }
        let message = format!("the manager at {} does not answer: {why}", self.base());
        let failure = Failure::new(ExitCode::Unavailable, message);
        Unanswered::Nothing(
            failure
                .with_hint(
                    "it hangs, or its machine is gone: look at it, or name another manager of its store, too",
                )
                .that_may_pass(),
        )
    }

    fn lost(&self, why: &str) -> Unanswered {
        let message = format!(
            "it was sent to {}, and the answer was lost: whether it was done is not known ({why})",
            self.base()
        );
        let failure = Failure::new(ExitCode::Indeterminate, message);
        Unanswered::Lost(
            failure.with_hint(
                "look before you repeat it: poolwright ops list; with the same --key it is done once",
            ),
        )
    }

    /// The address as people write it.
    fn base(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }
}

/// A refusal of what may have been done by another manager just before.
fn after_a_loss(mut failure: Failure, before: &Manager) -> Failure {
    failure.message = format!(
        "{} (it was sent to {} before, whose answer was lost: this may be what that one did)",
        failure.message,
        before.base()
    );
    failure
}

/// What an answer is that no manager gives.
fn strange(status: StatusCode, text: &[u8]) -> String {
    let html = text.trim_ascii_start().first() == Some(&b'<');
    let what = if html {
        "a web page"
    } else {
        "nothing that a manager says"
    };
    match status {
        status if status.is_redirection() => format!("it answers {status}, and redirects are not followed"),
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            format!("something in between answers {status} with {what}")
        }
        status => format!("it answers {status} with {what}"),
    }
}

/// An error with everything that led to it, each thing once; not the address, which the message has.
fn causes(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !words.contains(&text) {
            words.push(text);
        }
        next = cause.source();
    }
    match words.is_empty() {
        true if error.is_timeout() => "no answer in time".to_owned(),
        true => error.to_string(),
        false => words.join(": "),
    }
}
