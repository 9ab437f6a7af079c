//! Calls of monitoring programs; they need no identity.

use super::HttpsDoor;
use crate::base::metrics::TEXT_TYPE;
use godwit_store::door::RequestBody;
use godwit_wire::Refusal;
use hyper::{Method, Request, Response, body::Incoming, header::CONTENT_TYPE};

/// Answers `/healthz`; `None`: another request.
pub(super) fn alive(request: &Request<Incoming>) -> Option<Response<RequestBody>> {
    let is_asked = matches!(*request.method(), Method::GET | Method::HEAD);
    (is_asked && request.uri().path() == "/healthz").then(|| told(200, PLAIN, "ok\n".into()))
}

/// Tells whether a target is a page for those who watch over a node.
pub(super) fn is_asked(target: &str) -> bool {
    matches!(target, "/readyz" | "/metrics")
}

/// Answers `/readyz` and `/metrics`; `None`: the target is another.
pub(super) fn answer(door: &HttpsDoor, target: &str) -> Option<Response<RequestBody>> {
    let (status, kind, text) = match target {
        "/readyz" => match ready(door) {
            Ok(()) => (200, PLAIN, "ready\n".to_owned()),
            Err(why) => (503, PLAIN, format!("not ready: {why}\n")),
        },
        "/metrics" => (200, TEXT_TYPE, door.shared.metrics.to_text()),
        _ => return None,
    };
    Some(told(status, kind, text))
}

fn told(status: u16, kind: &str, text: String) -> Response<RequestBody> {
    let head = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind);
    head.body(RequestBody::whole(text))
        .expect("its headers are ours")
}

fn ready(door: &HttpsDoor) -> Result<(), String> {
    let shared = &door.shared;
    if shared.stop.is_draining() {
        return Err("the node is stopping".into());
    }
    let seen = shared.dir_of_node().look();
    seen.map_err(|error| format!("the export cannot be read: {}", Refusal::from(&error).said))?;
    shared.trust.door().map_err(|error| error.to_string())?;
    Ok(())
}

const PLAIN: &str = "text/plain; charset=utf-8";
