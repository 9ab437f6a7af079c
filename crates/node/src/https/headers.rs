//! Conditions on the head of every request, checked before any work.

use godwit_core::Kind;
use godwit_wire::door::call::Refusal;
use hyper::{
    HeaderMap, Request, Version,
    header::{CONTENT_ENCODING, HOST, HeaderName, TRANSFER_ENCODING},
};

/// Refuses a request that could be read in two ways, or that needs an unknown feature. `doubt` was found in its bytes
/// before hyper parsed them.
pub(super) fn check<B>(request: &Request<B>, doubt: Option<&str>) -> Result<(), Refusal> {
    let bad = |why: &str| {
        Err(Refusal::of_kind(
            Kind::Protocol,
            format!("the request is refused: {why}"),
        ))
    };
    if let Some(doubt) = doubt {
        return bad(doubt);
    }
    let headers = request.headers();
    let hosts = headers.get_all(HOST).iter().count();
    if hosts > 1 || hosts == 0 && request.version() >= Version::HTTP_11 {
        return bad("it names not one host");
    }
    if all_of(headers, TRANSFER_ENCODING).any(|coding| !coding.eq_ignore_ascii_case(b"chunked")) {
        return bad("its Transfer-Encoding is another than chunked");
    }
    if all_of(headers, CONTENT_ENCODING).any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        let why = "its body is compressed (Content-Encoding), which is not undone here";
        return Err(Refusal::of_kind(Kind::Unsupported, why));
    }
    if request.uri().scheme().is_some() || !request.uri().path().starts_with('/') {
        return bad("a target begins with a slash; this is no proxy");
    }
    Ok(())
}

fn all_of(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.as_bytes().trim_ascii())
}
