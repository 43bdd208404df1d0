"""A server with live sessions, and a page that shows what happens when one disturbs it."""
