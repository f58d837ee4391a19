//! What an address leads to: a document, and what can be done to it.

use super::document::ROOT;
use super::{Problem, Service, View};
use crate::access::Access;
use crate::rack::Rack;
use crate::state::{Change, ChangeId, Course, State, TaskInfo};
use http::{Method, StatusCode};
use jiff::Timestamp;
use poolwright_redfish_model::check;
use poolwright_redfish_model::schema::Type;
use serde_json::Value;
use std::sync::Arc;

/// What a GET of it answers.
pub(crate) enum Content {
    /// A resource; it has `@odata.id` and `@odata.type`.
    Json(Value),
    /// `$metadata`.
    Xml(String),
    /// Nothing: the status says it all.
    Nothing,
}

/// What an address leads to.
pub(crate) struct Resource {
    pub content: Content,
    /// What a GET answers: 200, but for the targets of actions and the monitors of tasks.
    pub status: StatusCode,
    /// For the header of that name.
    pub location: Option<String>,
    pub writes: Vec<Write>,
}

/// Does a write. The body has been checked by then.
pub(crate) type Apply = Box<dyn FnOnce(&mut Writing<'_>) -> Result<Done, Problem>>;

/// One thing that can be done, and by which method.
pub(crate) struct Write {
    pub method: Method,
    check: Check,
    pub apply: Apply,
}

/// What bodies are checked against.
enum Check {
    /// JSON pointers of the properties that may be written here.
    Update(&'static Type, &'static [&'static str]),
    Create(&'static Type),
    Action(&'static Type, &'static str),
    /// It takes no body.
    None,
}

/// What a write has at hand.
pub(crate) struct Writing<'a> {
    pub rack: Arc<Rack>,
    pub state: &'a mut State,
    pub now: Timestamp,
    pub service: Service,
    pub access: &'a Access,
    pub method: &'a Method,
    pub path: &'a str,
    pub body: &'a Value,
    /// How what it begins will go.
    pub course: Course,
}

/// How a write goes on.
#[derive(Debug)]
pub(crate) enum Done {
    /// Done, and there is nothing to show.
    Quietly,
    /// Made: where it is, what it looks like, and a session's token.
    Created { uri: String, token: Option<String> },
    /// It takes until `due`; the answer waits for that.
    Change {
        id: ChangeId,
        due: Timestamp,
        creates: Option<String>,
    },
    /// It goes on by itself, and is watched as this task.
    Task(ChangeId),
}

impl Resource {
    pub fn new(status: StatusCode, content: Content) -> Self {
        Self {
            content,
            status,
            location: None,
            writes: Vec::new(),
        }
    }

    /// A document that can only be read.
    pub fn of(body: Value) -> Self {
        Self::new(StatusCode::OK, Content::Json(body))
    }

    /// The target of an action.
    pub fn action(
        schema: &'static Type,
        name: &'static str,
        apply: impl FnOnce(&mut Writing<'_>) -> Result<Done, Problem> + 'static,
    ) -> Self {
        let nothing = Self::new(StatusCode::METHOD_NOT_ALLOWED, Content::Nothing);
        nothing.with(Method::POST, Check::Action(schema, name), apply)
    }

    /// Says where to go on.
    pub fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// Can be changed: the properties at these JSON pointers, by whose schema.
    pub fn patch(
        self,
        schema: &'static Type,
        writable: &'static [&'static str],
        apply: impl FnOnce(&mut Writing<'_>) -> Result<Done, Problem> + 'static,
    ) -> Self {
        self.with(Method::PATCH, Check::Update(schema, writable), apply)
    }

    /// A collection that new members can be put into.
    pub fn post(
        self,
        member: &'static Type,
        apply: impl FnOnce(&mut Writing<'_>) -> Result<Done, Problem> + 'static,
    ) -> Self {
        self.with(Method::POST, Check::Create(member), apply)
    }

    pub fn delete(self, apply: impl FnOnce(&mut Writing<'_>) -> Result<Done, Problem> + 'static) -> Self {
        self.with(Method::DELETE, Check::None, apply)
    }

    fn with(
        mut self,
        method: Method,
        check: Check,
        apply: impl FnOnce(&mut Writing<'_>) -> Result<Done, Problem> + 'static,
    ) -> Self {
        self.writes.push(Write {
            method,
            check,
            apply: Box::new(apply),
        });
        self
    }

    /// For the header of that name: `GET, HEAD, PATCH`.
    pub fn allow(&self) -> String {
        let reads: &[&str] = match self.status {
            StatusCode::METHOD_NOT_ALLOWED => &[],
            _ => &["GET", "HEAD"],
        };
        let writes = self.writes.iter().map(|write| write.method.as_str());
        reads.iter().copied().chain(writes).collect::<Vec<_>>().join(", ")
    }
}

impl Write {
    /// Whether a body may ask this, by the schema and by what is offered here.
    pub fn check(&self, body: &Value) -> Result<(), Problem> {
        let found = match self.check {
            Check::None => Vec::new(),
            Check::Create(schema) => check::check_create(schema, body),
            Check::Action(schema, name) => check::check_action(schema, name, body),
            Check::Update(schema, writable) => return check_update(schema, writable, body),
        };
        if found.is_empty() {
            Ok(())
        } else {
            Err(Problem::violations(found))
        }
    }
}

fn check_update(schema: &Type, writable: &[&str], body: &Value) -> Result<(), Problem> {
    let mut found = check::check_update(schema, body);
    // Some properties that the schema calls read-only are written by published practice; `writable` says which.
    // Their types are checked all the same.
    found.retain(|one| one.message != "PropertyNotWritable" || !writable.contains(&one.path.as_str()));
    let of_writable = |one: &check::Violation| writable.iter().any(|path| one.path.starts_with(path));
    for one in check::check_create(schema, body) {
        if of_writable(&one) && !found.contains(&one) {
            found.push(one);
        }
    }
    let mut asked = Vec::new();
    leaves(body, String::new(), writable, &mut asked);
    for (path, name) in asked {
        let offered = writable.contains(&path.as_str());
        if !offered && !found.iter().any(|one| path.starts_with(&one.path)) {
            found.push(check::Violation {
                message: "PropertyNotWritable",
                path,
                args: vec![name],
            });
        }
    }
    match (found.is_empty(), body.as_object()) {
        (false, _) => Err(Problem::violations(found)),
        (true, Some(members)) if members.keys().all(|name| name.contains('@')) => {
            Err(Problem::bad("NoOperation", &[]))
        }
        (true, _) => Ok(()),
    }
}

/// The properties that a body wants to write: pointer and name. Goes no deeper than one that may be written.
fn leaves(value: &Value, path: String, writable: &[&str], into: &mut Vec<(String, String)>) {
    for (name, value) in value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.contains('@'))
    {
        let path = format!("{path}/{name}");
        if value.is_object() && !writable.contains(&path.as_str()) {
            leaves(value, path, writable, into);
        } else {
            into.push((path, name.clone()));
        }
    }
}

impl Writing<'_> {
    /// What the service shows just now.
    pub fn view(&self) -> View<'_> {
        View {
            rack: &self.rack,
            state: self.state,
            now: self.now,
            service: self.service,
            access: self.access,
        }
    }

    /// Looks whether an entity tag that the body sends, if it does, is the one that the resource has.
    pub fn check_etag(&self, member: &str, uri: &str) -> Result<(), Problem> {
        let Some(sent) = self.body.get(member).and_then(Value::as_str) else {
            return Ok(());
        };
        match super::etag(&self.view(), uri) {
            Some(now) if !same_etag(sent, &now) => Err(Problem::precondition_failed()),
            _ => Ok(()),
        }
    }

    /// Begins a change, as a task where the rack has them.
    pub fn begin(&mut self, change: Change, creates: Option<String>) -> Result<Done, Problem> {
        let task = match self.service {
            Service::Box(of_box) if self.rack.options.tasks => Some(TaskInfo {
                of_box,
                method: self.method.to_string(),
                target: self.path.to_owned(),
                creates: creates.clone(),
            }),
            _ => None,
        };
        let is_task = task.is_some();
        // Without tasks there is nobody to wait for ever: the answer just tells a lie.
        let course = if self.course == Course::Never && !is_task {
            Course::NoEffect
        } else {
            self.course
        };
        let begun = self.state.begin(change, course, task, self.now);
        let (id, due) = begun.map_err(|refusal| Problem::from(&refusal))?;
        Ok(if is_task {
            Done::Task(id)
        } else {
            Done::Change { id, due, creates }
        })
    }

    /// The URI in the body at this JSON pointer.
    pub fn uri_at(&self, pointer: &str) -> Option<&str> {
        uri_of(self.body.pointer(pointer)?)
    }

    /// The URIs in the list at this JSON pointer. `None` if there is no such list.
    pub fn uris_at(&self, pointer: &str) -> Option<Vec<&str>> {
        let list = self.body.pointer(pointer)?.as_array()?;
        list.iter().map(uri_of).collect()
    }
}

/// Weak or strong, quoted or not: services and clients write them either way.
pub(crate) fn same_etag(a: &str, b: &str) -> bool {
    fn bare(tag: &str) -> &str {
        tag.trim().trim_start_matches("W/").trim_matches('"')
    }
    bare(a) == bare(b)
}

fn uri_of(link: &Value) -> Option<&str> {
    link.get("@odata.id")?.as_str()
}

/// `/redfish/v1` and more.
pub(crate) fn uri(rest: impl std::fmt::Display) -> String {
    format!("{ROOT}/{rest}")
}
