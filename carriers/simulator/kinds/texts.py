"""What carriers write where an answer should stand."""

HTML_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Gateway error</title></head>"
    b"<body><h1>The service is busy</h1><hr>nginx</body></html>\n"
)
HTML_TYPE = "text/html; charset=utf-8"
BUSINESS_CODE = 2_101
BUSINESS_TEXT = "卡号已停机保号，不能办理此业务"
